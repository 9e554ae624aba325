"""Where ``ovirt-scheduler setup`` finds the program, and how it is linked."""

from __future__ import annotations

from tests.support.setup_root import UNIT, at, refused, tree


def test_the_unit_names_the_program_where_it_is_installed(root, setup, monkeypatch):
    """A venv's, for instance."""
    program = at(root, "/opt/scheduler/bin/ovirt-scheduler")
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setattr("sys.argv", [str(program)])
    setup()
    assert "\nExecStart=/opt/scheduler/bin/ovirt-scheduler serve\n" in at(root, UNIT).read_text(
        "utf-8"
    )


def test_a_virtual_environment_is_linked_to_where_it_is_looked_for(root, setup, monkeypatch):
    """Program, manual pages and manual; by the link it is the same program, and all goes again."""
    shown = ("bin/ovirt-scheduler", "share/man/man1/ovirt-scheduler.1",
             "share/man/man5/ovirt-scheduler.conf.5", "share/doc/ovirt-scheduler",
             "share/bash-completion/completions/ovirt-scheduler")  # fmt: skip
    for name in shown:
        at(root, f"/opt/scheduler/{name}").parent.mkdir(parents=True, exist_ok=True)
        at(root, f"/opt/scheduler/{name}").touch()
    monkeypatch.setattr("sys.argv", [str(at(root, "/opt/scheduler/bin/ovirt-scheduler"))])
    told = setup()[1]
    for name in shown:
        assert f"link /usr/local/{name} to /opt/scheduler/{name}\n" in told
        assert str(at(root, f"/usr/local/{name}").readlink()) == f"/opt/scheduler/{name}"
    monkeypatch.setattr("sys.argv", [str(at(root, "/usr/local/bin/ovirt-scheduler"))])
    before = tree(root)
    assert "already so: /usr/local/bin/ovirt-scheduler leads to /opt" in setup()[1]
    assert tree(root) == before
    at(root, "/usr/local/bin/ovirt-scheduler").unlink()
    at(root, "/usr/local/bin/ovirt-scheduler").symlink_to("/opt/mine")
    told = setup("--remove")[1]
    assert "kept: /usr/local/bin/ovirt-scheduler, which setup did not make\n" in told
    assert [path.name for path in at(root, "/usr/local").rglob("*") if path.is_symlink()] == [
        "ovirt-scheduler"
    ]


def test_what_lies_where_a_link_would_be_stays(root, setup, monkeypatch):
    """A program of that name that somebody else has put there."""
    for folder in ("/opt/scheduler/bin", "/usr/local/bin"):
        at(root, folder).mkdir(parents=True)
    program = at(root, "/opt/scheduler/bin/ovirt-scheduler")
    program.touch()
    at(root, "/usr/local/bin/ovirt-scheduler").write_text("mine")
    monkeypatch.setattr("sys.argv", [str(program)])
    kept = "kept: /usr/local/bin/ovirt-scheduler, which was there before\n"
    assert kept in setup()[1]
    assert kept in setup()[1]
    setup("--remove")
    assert at(root, "/usr/local/bin/ovirt-scheduler").read_text() == "mine"


def test_a_program_that_the_unit_hides_is_refused(root, setup, monkeypatch):
    """Before anything is made: ProtectHome would keep the daemon from starting, without a word."""
    program = at(root, "/home/ada/venv/bin/ovirt-scheduler")
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setattr("sys.argv", [str(program)])
    before = tree(root)
    assert "/home/ada/venv/bin/ovirt-scheduler: the unit hides this folder" in refused(setup)
    assert tree(root) == before


def test_an_image_without_the_program_is_refused(root, setup):
    """This one, of a virtual environment outside, cannot be started there."""
    at(root, "/usr/bin/ovirt-scheduler").unlink()
    before = tree(root)
    assert f"install the package first in {root}, from within it" in refused(setup)
    assert tree(root) == before


def test_a_virtual_environment_made_from_outside_is_refused(root, setup, monkeypatch):
    """Its programs name its Python as the machine outside finds it."""
    program = at(root, "/opt/scheduler/bin/ovirt-scheduler")
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{program.parent}/python\n")
    (program.parent / "python").symlink_to("/usr/bin/python3")
    monkeypatch.setattr("sys.argv", [str(program)])
    assert f"is run by {program.parent}/python, which is not in {root}" in refused(setup)
    program.write_text("#!/opt/scheduler/bin/python\n")
    assert setup()[0] == 0


def test_a_python_that_the_unit_hides_is_refused(root, setup, monkeypatch):
    """One of pyenv's or uv's in somebody's home, which a venv elsewhere leads to."""
    hidden = at(root, "/root/.pyenv/bin/python3")
    program = at(root, "/opt/scheduler/bin/ovirt-scheduler")
    for path in (hidden, program):
        path.parent.mkdir(parents=True)
    hidden.touch()
    (program.parent / "python").symlink_to("../../../root/.pyenv/bin/python3")
    program.write_text("#!/opt/scheduler/bin/python\n")
    monkeypatch.setattr("sys.argv", [str(program)])
    assert "/root/.pyenv/bin/python3: the unit hides this folder" in refused(setup)
