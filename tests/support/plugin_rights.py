"""What a plugin can do under the unit, and what it cannot, as a plugin that tries each."""

from __future__ import annotations

# Accepts the hosts whose id is the name of something that works.
CAN = """
import ctypes, multiprocessing, os, resource, signal, socket, subprocess, tempfile, urllib.request
import cffi, ovirtsdk4, pycurl

def fork(): assert os.waitpid(os.fork() or os._exit(0), 0)[1] == 0
def leave_a_session(): subprocess.run(["true"], check=True, start_new_session=True)
def pool():
    with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
def lower_a_limit(): resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
def call_back():
    assert cffi.FFI().callback("int(int)", abs)(-7) == 7
def use_the_sdk(): ovirtsdk4.types.Host(id="a")
def ask_over_http():
    assert b"listing" in urllib.request.urlopen("http://localhost:8080/", timeout=10).read()
def ask_with_curl():
    curl = pycurl.Curl()
    curl.setopt(curl.URL, "http://localhost:8080/")
    curl.setopt(curl.WRITEFUNCTION, len)
    curl.perform()
    assert curl.getinfo(curl.RESPONSE_CODE) == 200
def share_memory():
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file: file.write(bytes(32 << 20))
    multiprocessing.get_context("fork").Lock()
def leave_shared_memory(): open("/dev/shm/left", "x").close()
def write_a_temporary_file(): tempfile.NamedTemporaryFile().write(b"1")
def write_its_state(): tempfile.NamedTemporaryFile(dir="/var/lib/ovirt-scheduler").write(b"1")
def write_its_log(): tempfile.NamedTemporaryFile(dir="/var/log/ovirt-scheduler").write(b"1")
def leave_a_program(): subprocess.Popen(["sleep", "1000"], start_new_session=True)
def leave_a_process():
    if os.fork() == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(15, b"sleep")  # its name
        while True: signal.pause()

def write_elsewhere(): open("/srv/open/written", "w").close()
def write_its_settings(): open("/etc/ovirt/scheduler/written", "w").close()
def look_at_home(): os.listdir("/home")
def see_other_users_processes(): os.stat("/proc/1")
def fill_the_shared_memory():
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file: file.write(bytes(65 << 20))
def use_shared_memory_of_system_v():
    assert ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0
def use_a_device(): open("/dev/spare").close()
def be_root(): os.setuid(0)
def make_a_namespace(): assert ctypes.CDLL(None).unshare(0x10000000) == 0
def mount(): assert ctypes.CDLL(None).mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0
def ask_the_kernel(): socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
def give_a_file_its_user():
    with tempfile.NamedTemporaryFile() as file: os.chmod(file.name, 0o4755)
def be_first(): os.nice(-5)

def do_filter(hosts, vm, properties):
    return [host for host in hosts if works(host.id)]

def works(name):
    try:
        globals()[name]()
    except (OSError, AssertionError) as error:
        print(name, repr(error))
        return False
    return True
"""
ALLOWED = [
    "fork", "leave_a_session", "pool", "lower_a_limit", "call_back", "use_the_sdk", "ask_over_http",
    "ask_with_curl", "share_memory", "write_a_temporary_file", "write_its_state", "write_its_log", "leave_a_program",
    "leave_a_process",
]  # fmt: skip
REFUSED = [
    "write_elsewhere", "write_its_settings", "look_at_home", "see_other_users_processes",
    "fill_the_shared_memory", "use_shared_memory_of_system_v", "use_a_device", "be_root",
    "make_a_namespace", "mount", "ask_the_kernel", "give_a_file_its_user", "be_first",
]  # fmt: skip
