package integration

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"cellblock/kernel"
)

// TestCall: the parameters of a call, and how calls follow one another.
func TestCall(t *testing.T) {
	t.Run("code in a call with reset is not executed", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		s.ok("x = 1")
		s.call(context.Background(), kernel.Call{Code: "y = 2", Reset: true})
		s.shows(`("x" in globals(), "y" in globals())`, "(False, False)")
	})
	t.Run("reset returns to the session directory", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		s.ok(`os.chdir("/")`)
		s.reset()
		s.shows("os.getcwd()", "'"+s.dir+"'")
	})
	t.Run("variables, imports, functions, chdir and environment survive", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		s.ok(`
import math as m
def twice(n): return 2 * n
n = 4
os.chdir("/usr"); os.environ["SURVIVES"] = "yes"`)
		s.shows(`(m.sqrt(n), twice(n), os.getcwd(), os.environ["SURVIVES"])`, "(2.0, 8, '/usr', 'yes')")
		s.shows(`subprocess.getoutput("echo $SURVIVES; pwd")`, `'yes\n/usr'`)
	})
	t.Run("calls are sequential and queue in order", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		s.ok("order = []")
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			wg.Add(1)
			go func() {
				defer wg.Done()
				s.kernel.Call(context.Background(), kernel.Call{Code: "import time; time.sleep(0.3); order.append('" + name + "')"})
			}()
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		s.shows("order", "['a', 'b', 'c']")
	})
	t.Run("one interpreter a session", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		first := s.ok("os.getpid()")
		s.reset()
		s.shows("os.getpid()", first.value())
	})
	t.Run("the session directory is where cells start and what they may write", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		s.ok(`Path("here.txt").write_text("ü")`)
		if got := s.read("here.txt"); got != "ü" {
			t.Errorf("the host reads %q", got)
		}
		if owner(t, s.path("here.txt")) != owner(t, s.dir) {
			t.Error("the file does not belong to the directory's owner")
		}
	})
}

// TestWhatACellShows: values, await, tracebacks, streams, rich results, input.
func TestWhatACellShows(t *testing.T) {
	t.Run("the trailing value is shown and None is not", func(t *testing.T) {
		t.Parallel()
		runCells(t, open(t), []cell{
			{code: "40 + 2", value: "42"},
			{code: "_ + 1", value: "43"},
			{code: "None", silent: true},
			{code: "_", value: "43"},
			{code: "99;", silent: true},
			{code: "x = 1\nx;  # with a note", silent: true},
			{code: "'a;b'", value: "'a;b'"},
		})
	})
	t.Run("top-level await, async for and async with work on one loop", func(t *testing.T) {
		t.Parallel()
		runCells(t, open(t), []cell{
			{code: "import asyncio, contextlib\nfirst = asyncio.get_running_loop() if False else None\nawait asyncio.sleep(0)"},
			{code: "async def counts():\n    yield 1\n    yield 2\ngot = []\nasync for n in counts():\n    got.append(n)\ngot", value: "[1, 2]"},
			{code: "@contextlib.asynccontextmanager\nasync def room():\n    yield 'in'\nasync with room() as where:\n    pass\nwhere", value: "'in'"},
			{code: "async def loop(): return asyncio.get_running_loop()\none = await loop()"},
			{code: "one is await loop()", value: "True"},
			{code: "event = asyncio.Event(); waiting = asyncio.ensure_future(event.wait()); await asyncio.sleep(0)"},
			{code: "event.set(); await waiting", value: "True"},
			{code: "asyncio.run(asyncio.sleep(0, 'run'))", value: "'run'"},
			{code: "one is await loop()", value: "True"},
		})
	})
	t.Run("output of Python, children and native code is tagged with its stream", func(t *testing.T) {
		t.Parallel()
		r := open(t).ok(`
import ctypes
print("python out"); print("python err", file=sys.stderr)
subprocess.run("echo child out; echo child err >&2", shell=True)
libc = ctypes.CDLL(None)
libc.write(1, b"native out\n", 11); libc.write(2, b"native err\n", 11)
libc.printf(b"stdio out\n"); libc.fflush(None)`)
		if got := r.Details.Stdout; got != "python out\nchild out\nnative out\nstdio out\n" {
			t.Errorf("stdout %q", got)
		}
		if got := r.Details.Stderr; got != "python err\nchild err\nnative err\n" {
			t.Errorf("stderr %q", got)
		}
	})
	t.Run("output of a child that outlives its cell is background", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		s.ok(`subprocess.Popen("sleep 1; echo straggler", shell=True); None`)
		eventually(t, "a later reply tells the straggler", hang, func() bool {
			r := s.ok("print('mine')")
			if r.Details.Stdout != "mine\n" {
				t.Errorf("stdout of a later cell: %q", r.Details.Stdout)
			}
			return strings.Contains(string(r.raw), "straggler")
		})
		lacks(t, "the reply after it", string(s.ok("1").raw), "straggler")
	})
	t.Run("a child that holds stdout open delays nothing", func(t *testing.T) {
		t.Parallel()
		r := open(t).ok(`subprocess.Popen(["sleep", "300"]); 1`)
		if *r.Details.DurationMs > 5000 {
			t.Errorf("the reply took %v ms", *r.Details.DurationMs)
		}
	})
	t.Run("rich representations come beside the text", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for method, mime := range map[string]string{
			"_repr_html_": "text/html", "_repr_markdown_": "text/markdown", "_repr_svg_": "image/svg+xml",
			"_repr_png_": "image/png", "_repr_json_": "application/json",
		} {
			value := `"<b>rich</b>"`
			if method == "_repr_png_" {
				value = `bytes.fromhex("89504e470d0a1a0a")`
			}
			if method == "_repr_json_" {
				value = `{"a": 1}`
			}
			r := s.ok("class R:\n    def __repr__(self): return 'plain'\n    def " + method + "(self): return " + value + "\nR()")
			if r.value() != "plain" {
				t.Errorf("%s: the text is %q", method, r.value())
			}
			contains(t, "the reply with "+method, string(r.raw), mime)
			if method == "_repr_png_" && (len(r.images()) != 1 || r.images()[0].MimeType != "image/png") {
				t.Errorf("no image content: %s", r)
			}
		}
		r := s.ok("class M:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/html': '<i>', 'text/latex': 'x'}\nM()")
		contains(t, "the mime bundle", string(r.raw), "text/latex")
		broken := s.ok("class B:\n    def __repr__(self): return 'fine'\n    def _repr_html_(self): raise RuntimeError('no')\nB()")
		if broken.value() != "fine" {
			t.Errorf("a broken representation takes the text with it: %s", broken)
		}
	})
	t.Run("open figures come back as PNG once", func(t *testing.T) {
		t.Parallel()
		require(t, needMatplotlib)
		s := open(t)
		r := s.ok("import matplotlib.pyplot as plt\nplt.plot([1, 2]); None")
		if len(r.images()) != 1 || r.images()[0].MimeType != "image/png" || !strings.HasPrefix(r.images()[0].Data, "iVBORw0KGgo") {
			t.Errorf("%d images, want one PNG", len(r.images()))
		}
		if r := s.ok("1"); len(r.images()) != 0 {
			t.Errorf("the figure comes again")
		}
	})
	t.Run("input and getpass ask a host that answers", func(t *testing.T) {
		t.Parallel()
		s := open(t, answering(func(prompt string, password bool) (string, error) {
			if password {
				return "secret", nil
			}
			return "answer to " + prompt, nil
		}))
		s.shows(`input("who? ")`, "'answer to who? '")
		s.shows("import getpass; getpass.getpass()", "'secret'")
	})
	t.Run("numpy, pandas and sqlite work", func(t *testing.T) {
		t.Parallel()
		require(t, needNumpy, needPandas)
		s := open(t)
		s.shows("import numpy as np; int(np.arange(1000).dot(np.ones(1000)))", "499500")
		s.shows("import pandas as pd; int(pd.DataFrame({'a': [1, 2]}).a.sum())", "3")
		s.shows("import sqlite3; db = sqlite3.connect('x.db'); db.execute('create table t(a)'); db.commit(); db.execute('select count(*) from t').fetchone()", "(0,)")
		s.shows("import ssl; ssl.create_default_context().verify_mode.name", "'CERT_REQUIRED'")
	})
}
