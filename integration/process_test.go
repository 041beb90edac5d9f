package integration

import "testing"

// What scripts expect of any Unix process holds in a worker too, in both modes
// and without a word of the policy.
func TestWorkerIsAnOrdinaryProcess(t *testing.T) {
	for _, in := range []string{"report", "enforce"} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			s := open(t, mode(in))
			for _, c := range []struct{ code, stdout string }{
				{`open("/dev/stdout", "w").write("opened again\n");`, "opened again\n"},
				{`open("/proc/self/fd/1", "w").write("by number\n");`, "by number\n"},
				{`subprocess.run("echo from sh > /dev/stdout", shell=True);`, "from sh\n"},
				{`subprocess.run("echo x | tee /dev/stdout", shell=True);`, "x\nx\n"},
				{`fd = os.memfd_create("m"); open(f"/proc/self/fd/{fd}", "w").write("1");`, ""},
				{`f = open("gone", "w"); os.unlink("gone"); open(f"/dev/fd/{f.fileno()}", "w").write("1");`, ""},
			} {
				r := s.ok(c.code)
				if r.Details.Stdout != c.stdout {
					t.Errorf("%s: stdout %q, want %q", c.code, r.Details.Stdout, c.stdout)
				}
				if found := string(r.Details.Policy.Violations); found != "[]" {
					t.Errorf("%s: %s", c.code, found)
				}
			}
			s.shows(`import socket; socket.gethostbyaddr(socket.gethostbyname(socket.gethostname()))[0]`, "'cellblock'")
			s.shows(`import grp, pwd; bool(pwd.getpwuid(os.getuid()).pw_name and grp.getgrgid(os.getgid()).gr_name)`, "True")
		})
	}
}
