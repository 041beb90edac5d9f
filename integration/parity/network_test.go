package parity

import (
	"fmt"
	"strings"
	"testing"

	"cellblock/integration/need"
	"cellblock/jail"
	"cellblock/policy"
)

// calls that lead to an address, with A for it and F for its family. Nothing waits
// for an answer.
var netCalls = []struct{ name, code string }{
	{"connect", `s = socket.socket(F); s.setblocking(False); s.connect(A)`},
	{"connect of datagrams", `s = socket.socket(F, socket.SOCK_DGRAM); s.connect(A)`},
	{"sendto", `s = socket.socket(F, socket.SOCK_DGRAM); s.sendto(b"x", A)`},
	{"sendmsg", `s = socket.socket(F, socket.SOCK_DGRAM); s.sendmsg([b"x"], [], 0, A)`},
	{"connect by a thread", `s = socket.socket(F); s.setblocking(False); threaded(lambda: s.connect(A))`},
}

var netTargets = []string{
	`("127.0.0.1", 9)`, `("127.8.8.8", 9)`, `("::1", 9)`,
	`("192.0.2.7", 80)`, `("10.0.0.1", 53)`, `("169.254.169.254", 80)`, `("::ffff:192.0.2.7", 80)`, `("2001:db8::1", 443)`,
}

const netProgram = `
import threading
def threaded(f):
    problems = []
    def run():
        try:
            f()
        except OSError as problem:
            problems.append(problem)
    t = threading.Thread(target=run)
    t.start()
    t.join()
    if problems:
        raise problems[0]
def reach(code):
    try:
        exec(code, globals(), globals())
        return "done"
    except OSError as problem:
        return errno.errorcode.get(problem.errno, str(problem.errno))
def reach_forked(code):
    come, go = os.pipe()
    if os.fork() == 0:
        os.write(go, reach(code).encode())
        os._exit(0)
    os.close(go)
    with open(come) as answer:
        text = answer.read()
    os.wait()
    return text
`

// TestNetworkModesAgree: the connections that report would deny are those that lead
// nowhere under enforce, and nowhere else is anything told of.
func TestNetworkModesAgree(t *testing.T) {
	need.Features(t, jail.UserNamespace, jail.NetworkNamespace, jail.SeccompNotify, jail.Overlay)
	type tried struct{ result, told string }
	results := map[policy.Mode]map[string]tried{}
	for _, mode := range []policy.Mode{policy.Off, policy.Report, policy.Shadow, policy.Enforce} {
		s := open(t, mode, rules, nil)
		s.run(netProgram)
		results[mode] = map[string]tried{}
		for _, c := range netCalls {
			for _, target := range netTargets {
				for _, actor := range []string{"reach", "reach_forked"} {
					family := "socket.AF_INET"
					if strings.Contains(target, "::") {
						family = "socket.AF_INET6"
					}
					code := strings.NewReplacer("F)", family+")", "F,", family+",", "A)", target+")").Replace(c.code)
					r := s.run("print(" + actor + "(" + quote(code) + "))")
					got := tried{result: strings.TrimSpace(r.Details.Stdout)}
					for _, v := range r.Details.Policy.Violations {
						got.told += fmt.Sprintf("%s %s %d (%s)", v.Op, v.Path, v.Count, v.Rule)
					}
					results[mode][c.name+" "+target+" "+actor] = got
				}
			}
		}
	}
	denied := 0
	for name, report := range results[policy.Report] {
		off, shadow, enforce := results[policy.Off][name], results[policy.Shadow][name], results[policy.Enforce][name]
		away := !strings.Contains(name, `"127.`) && !strings.Contains(name, `"::1"`)
		if away {
			denied++
		}
		if (report.told != "") != away || report.told != enforce.told || report.told != shadow.told || off.told != "" {
			t.Errorf("%s: told %q by report, %q by shadow, %q by enforce, %q by off", name, report.told, shadow.told, enforce.told, off.told)
		}
		if refused := enforce.result == "ENETUNREACH"; refused != away {
			t.Errorf("%s: enforce ends in %s", name, enforce.result)
		}
		if report.result != off.result {
			t.Errorf("%s: report ends in %s, off in %s", name, report.result, off.result)
		}
	}
	t.Logf("%d connections, of which the policy denies %d", len(results[policy.Report]), denied)
}
