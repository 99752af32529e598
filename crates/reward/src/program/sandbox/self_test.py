# Fails with a name wherever the sandbox lets something through that it must not.
import os, sys
open("kept", "w").write("x")
assert open("kept").read() == "x"
wrong = []
def must_fail(name, call):
    try:
        call()
    except (OSError, MemoryError):
        return
    wrong.append(name)
if "files" in sys.argv:
    must_fail("read /etc/passwd", lambda: open("/etc/passwd").read())
    must_fail("list /", lambda: os.listdir("/proc/self"))
    must_fail("write outside", lambda: open("../outside", "w"))
if "calls" in sys.argv:
    import _socket
    must_fail("make a socket", lambda: _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM))
if "signals" in sys.argv:
    must_fail("signal the parent", lambda: os.kill(os.getppid() or 1 << 22, 0))
if "fork" in sys.argv:
    def fork():
        if os.fork() == 0:
            os._exit(0)
    must_fail("start a process", fork)
print("wrong: " + ", ".join(wrong) if wrong else "isolated")
