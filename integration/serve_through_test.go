package integration

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/kernel/front/http/client"
	front "cellblock/kernel/front/http/server"
	"cellblock/kernel/front/mcp"
)

// throughVariable has every session of the tests opened through a server.
const throughVariable = "CELLBLOCK_TEST_THROUGH"

// TestCasesThroughAServer runs all groups of cases again, each session of them being one
// of a server's, which a client of its socket uses.
func TestCasesThroughAServer(t *testing.T) {
	if through() {
		t.Skip("this is the run through a server")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^(TestCases[A-I][0-9]*|TestThroughAServer)$", "-test.v")
	cmd.Env = append(os.Environ(), throughVariable+"=serve")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, failed(string(out)))
	}
	contains(t, "control: the sessions are a server's", string(out), "--- PASS: TestThroughAServer")
}

// failed is what 'go test -v' printed without the lines of what ran and what passed.
func failed(out string) string {
	var kept strings.Builder
	for line := range strings.Lines(out) {
		mark := strings.TrimSpace(line)
		if !strings.HasPrefix(mark, "=== ") && !strings.HasPrefix(mark, "--- PASS") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// TestThroughAServer is the control of TestCasesThroughAServer.
func TestThroughAServer(t *testing.T) {
	if !through() {
		t.Skip("runs within TestCasesThroughAServer")
	}
	s := open(t)
	if _, is := s.runs.(*remote); !is {
		t.Fatalf("%T", s.runs)
	}
	s.shows("6 * 7", "42")
}

// through reports whether sessions are to be a server's.
func through() bool { return os.Getenv(throughVariable) != "" }

// remote is a session of a server that runs in this process, and that ends with it.
type remote struct {
	*client.Session
	end context.CancelFunc
}

func (r *remote) Close() error {
	err := r.Session.Close()
	r.end()
	return err
}

// ofProcess are options that a server does not have: what they say is this process's.
var ofProcess = []string{"SessionDir", "Name", "SkillRoots", "Home", "Input", "Log", "Tools", "Approve", "Stock", "Store", "Retire", "KeepDefinitions", "Definitions", "Audit",
	"Trust"} // without it no extension of a session directory is loaded, which callers choose

// TestServersHaveEveryOption: one that a server would drop in silence is on the list.
func TestServersHaveEveryOption(t *testing.T) {
	var o kernel.Options
	v := reflect.ValueOf(&o).Elem()
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		if slices.Contains(ofProcess, name) {
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Int, reflect.Int64:
			f.SetInt(7)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Slice:
			f.Set(reflect.ValueOf([]string{"x"}).Convert(f.Type()))
		case reflect.Struct:
			f.Field(0).SetInt(7)
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		default:
			t.Fatalf("%s: set it here", name)
		}
	}
	got := reflect.ValueOf(api.FromKernel(o, "").Kernel())
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !reflect.DeepEqual(v.Field(i).Interface(), got.Field(i).Interface()) && v.Field(i).Kind() != reflect.Func {
			t.Errorf("%s: a server drops it; add it to api.Options, or to ofProcess with its flag refused by 'cellblock serve'", name)
		}
	}
}

// openThrough starts a server whose sessions are as the options say, and opens one.
func openThrough(t testing.TB, o kernel.Options) (*session, error) {
	t.Helper()
	v := reflect.ValueOf(o)
	for _, name := range ofProcess {
		if f := v.FieldByName(name); name != "SessionDir" && name != "Audit" && !f.IsZero() {
			t.Skipf("not through a server: %s is an option of this process", name)
		}
	}
	audit := ""
	if o.Audit != "" {
		audit = filepath.Dir(o.Audit)
	}
	config := api.Config{Version: "test", Socket: newDirIn(t, "/var/tmp") + "/sock", Bounds: api.DefaultBounds(), Session: api.FromKernel(o, audit)}
	fillIn(&config.Session)
	dir, err := filepath.EvalSymlinks(o.SessionDir)
	if err != nil {
		dir = o.SessionDir
	}
	config.Roots = []api.Root{{Path: dir}}
	s, err := front.New(config, front.Hooks{Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		MCP: func(living context.Context, call func(context.Context, kernel.Call) kernel.Result, description string) http.Handler {
			return mcp.Handler(living, call, "test", description)
		}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	reach, err := client.New(config.Socket, "")
	if err != nil {
		return nil, err
	}
	made, err := reach.Create(ctx, api.Create{Directory: dir})
	if err != nil {
		cancel()
		return nil, err
	}
	return &session{t: t, runs: &remote{made, cancel}, dir: o.SessionDir}, nil
}

// fillIn sets what the command's flags would have set.
func fillIn(o *api.Options) {
	if o.CellTimeout == 0 {
		o.CellTimeout = kernel.DefaultCellTimeout
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = kernel.DefaultMaxOutput
	}
	if o.OnTimeout == "" {
		o.OnTimeout = kernel.TimeoutKill
	}
	if o.Profile == "" {
		o.Profile = kernel.DefaultProfile
	}
}
