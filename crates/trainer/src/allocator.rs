//! What the C library does with memory that was freed.

/// Makes the C library keep freed memory for the next tensor, instead of returning its pages to the kernel.
///
/// A step makes and drops hundreds of tensors of megabytes. By default glibc asks the kernel for each anew, and every page costs a fault.
/// Call it first in a binary's `main`: it holds for the whole process, so a library has no business to. Does nothing with other C libraries.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use nix::libc::{M_ARENA_MAX, M_MMAP_MAX, M_TRIM_THRESHOLD, mallopt};

        for (parameter, value) in [(M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, i32::MAX), (M_ARENA_MAX, 1)] {
            // SAFETY: the function takes the allocator's own lock and accepts any value; what it refuses stays as it was.
            #[expect(unsafe_code, reason = "settings of the C library; see the argument above")]
            unsafe {
                mallopt(parameter, value);
            }
        }
    }
}
