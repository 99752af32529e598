//! Products of matrices that lie in slices.
#![expect(
    unsafe_code,
    reason = "the product takes pointers and strides; it is called where both were checked"
)]

use gemm::Parallelism;

/// A matrix in a slice: entry (i, j) is at `i·row_stride + j·column_stride`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// # Panics
    /// When an entry would lie outside of the slice.
    pub(super) fn new(values: &'a [f32], [rows, columns]: [usize; 2], strides: [usize; 2]) -> Self {
        let [row_stride, column_stride] = strides;
        check(values.len(), [rows, columns], strides);
        Self { values, rows, columns, row_stride, column_stride }
    }

    /// Rows that follow one another.
    pub(super) fn rows(values: &'a [f32], columns: usize) -> Self {
        Self::new(values, [values.len() / columns, columns], [columns, 1])
    }

    /// Number of rows.
    pub(super) fn height(&self) -> usize {
        self.rows
    }

    pub(super) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// Where a product goes: rows of consecutive numbers, `row_stride` apart.
#[derive(Debug)]
pub(super) struct Target<'a> {
    values: &'a mut [f32],
    row_stride: usize,
}

impl<'a> Target<'a> {
    pub(super) fn new(values: &'a mut [f32], row_stride: usize) -> Self {
        Self { values, row_stride }
    }
}

/// Which threads compute a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Threads {
    /// The caller's.
    One,
    /// As many as rayon has, where the product is worth it.
    All,
}

/// target = scale · a·b, or target += scale · a·b where `add` is set.
///
/// # Panics
/// When the shapes do not fit.
pub(super) fn multiply(
    target: Target<'_>,
    add: bool,
    scale: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
    threads: Threads,
) {
    /// Multiplications below which threads cost more than they bring.
    const WORTH_THREADS: usize = 1 << 20;
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!(k, b.rows, "columns of the first matrix, rows of the second");
    assert!(n <= target.row_stride, "rows of the target overlap");
    check(target.values.len(), [m, n], [target.row_stride, 1]);
    if m == 0 || n == 0 {
        return;
    }
    let parallelism = match threads {
        Threads::All if m * n * k >= WORTH_THREADS => Parallelism::Rayon(0),
        _ => Parallelism::None,
    };
    // SAFETY: every entry of the three matrices lies in its slice, as `check` has seen for each; rows of the target do not
    // overlap, and as it is borrowed mutably, nothing else does.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            target.values.as_mut_ptr(),
            1,
            target.row_stride as isize,
            add,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            1.0,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// Panics unless all entries lie within `len` numbers.
fn check(len: usize, [rows, columns]: [usize; 2], [row_stride, column_stride]: [usize; 2]) {
    let last = |count: usize, stride: usize| (count - 1).checked_mul(stride);
    let inside = rows == 0
        || columns == 0
        || last(rows, row_stride)
            .zip(last(columns, column_stride))
            .and_then(|(row, column)| row.checked_add(column))
            .is_some_and(|last| last < len);
    assert!(
        inside,
        "a matrix of {rows}×{columns} with strides {row_stride}, {column_stride} in {len} numbers"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows (1, 2) and (3, 4) by columns (5, 7) and (6, 8): 19, 22, 43, 50.
    #[test]
    fn strides_scale_and_sum_are_honoured() {
        let a = [1.0, 2.0, 9.0, 3.0, 4.0, 9.0];
        let b = [5.0, 6.0, 7.0, 8.0];
        let a = Matrix::new(&a, [2, 2], [3, 1]);
        let mut out = [1.0; 6];
        multiply(Target::new(&mut out, 3), false, 1.0, a, Matrix::rows(&b, 2), Threads::One);
        assert_eq!(out, [19.0, 22.0, 1.0, 43.0, 50.0, 1.0]);
        multiply(Target::new(&mut out, 3), true, 2.0, a, Matrix::rows(&b, 2).transposed(), Threads::All);
        // a·bᵀ = 17, 23, 39, 53.
        assert_eq!(out, [53.0, 68.0, 1.0, 121.0, 156.0, 1.0]);
    }

    #[test]
    #[should_panic(expected = "a matrix of 2×3")]
    fn a_matrix_that_does_not_fit_into_its_slice_is_refused() {
        let _ = Matrix::new(&[0.0; 5], [2, 3], [3, 1]);
    }

    #[test]
    #[should_panic(expected = "a matrix of 2×2")]
    fn a_target_that_is_too_short_is_refused() {
        let a = [0.0; 4];
        let matrix = Matrix::rows(&a, 2);
        multiply(Target::new(&mut [0.0; 3], 2), false, 1.0, matrix, matrix, Threads::One);
    }
}
