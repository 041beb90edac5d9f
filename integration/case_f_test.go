package integration

import (
	"fmt"
	"testing"

	"cellblock/kernel"
	"cellblock/policy"
)

// TestCasesF: the network of a session, taken away, filtered and open.
func TestCasesF(t *testing.T) {
	for _, in := range []struct {
		name string
		opts []option
	}{
		{"off", nil},
		{"proxied", []option{reaching(t, "host: pypi.org, port: [80, 443]")}},
		{"open", []option{func(o *kernel.Options) { o.Net = policy.NetHost }}},
	} {
		t.Run(in.name, func(t *testing.T) { runCases(t, casesF(in.name, in.opts)) })
	}
}

const serveAndAsk = `
import http.server, threading, urllib.request
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(WORD)
    def log_message(self, *a): pass
def serve(port):
    s = http.server.ThreadingHTTPServer(("127.0.0.1", port), H)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return s
def ask(host, port): return urllib.request.urlopen(f"http://{host}:{port}/", timeout=5).read()
`

func casesF(network string, opts []option) []bugCase {
	cases := []bugCase{
		{id: "F1", title: "server and client in one session", opts: opts, cells: []cell{{code: serveAndAsk + `
WORD = b"pong"
s = serve(0)
got = [ask(h, s.server_port) for h in ("127.0.0.1", "localhost")]
s.shutdown()
got`, value: "[b'pong', b'pong']", check: func(t *testing.T, _ *session, r reply) {
			if got := denials(r); got != "" {
				t.Errorf("violations %s", got)
			}
		}}}},
	}
	if network == "open" {
		return cases // the host's ports and names are everybody's
	}
	return append(cases,
		bugCase{id: "F2", title: "same port in two sessions", do: func(t *testing.T, _ bugCase) {
			a, b := open(t, opts...), open(t, opts...)
			for word, s := range map[string]*session{"a": a, "b": b} {
				s.ok(serveAndAsk + fmt.Sprintf("WORD = b%q\ns = serve(8765)", word))
			}
			a.shows(`ask("127.0.0.1", 8765)`, "b'a'")
			b.shows(`ask("127.0.0.1", 8765)`, "b'b'")
		}},
		bugCase{id: "F4", title: "refused destination fails fast", opts: opts, cells: []cell{{code: `
import urllib.request, time
t = time.time()
try: urllib.request.urlopen("http://example.com/", timeout=20)
except OSError as e: print(type(e).__name__)
time.time() - t < 3`, value: "True", check: func(t *testing.T, s *session, r reply) {
			want := map[string][2]string{"off": {"URLError\n", "lookup example.com net.none host 1"}, "proxied": {"HTTPError\n", "connect example.com:80 net.unlisted host 1"}}[network]
			if got := denials(r); r.Details.Stdout != want[0] || got != want[1] {
				t.Errorf("printed %q, violations %s; want %q", r.Details.Stdout, got, want)
			}
		}}, {code: `
import subprocess
subprocess.run(["getent", "ahosts", "example.org"]).returncode != 0`, value: "True", check: func(t *testing.T, s *session, r reply) {
			rule := map[string]string{"off": "net.none", "proxied": "net.unlisted"}[network]
			if got := denials(r); got != "lookup example.org "+rule+" host 1" {
				t.Errorf("a child's look-up: %s", got)
			}
		}}}})
}
