package main

import (
	"slices"
	"strings"
	"testing"

	"cellblock/policy"
)

// TestBlockOf: when the repl runs what was typed, line by line.
func TestBlockOf(t *testing.T) {
	for text, want := range map[string]blockState{
		"":                          blockEmpty,
		"   ":                       blockEmpty,
		"x = 1":                     blockDone,
		"f(1,":                      blockOpen,
		"f(1,\n  2)":                blockDone,
		"x = [1, # ]":               blockOpen,
		"x = ')'":                   blockDone,
		`x = "\"("`:                 blockDone,
		`x = """`:                   blockOpen,
		"x = '''a\n'''":             blockDone,
		"x = \"\"\"a'''\n":          blockOpen,
		"x = 1 + \\":                blockOpen,
		"x = 1 + \\\n2":             blockDone,
		"x = 'a\\\nb'":              blockDone,
		"x = 'unterminated":         blockDone, // a SyntaxError, which Python tells
		"def f():":                  blockBody,
		"def f():\n    return 1":    blockBody,
		"def f():\n    pass\n":      blockDone,
		"@d\ndef f():\n    pass":    blockBody,
		"async def f():":            blockBody,
		"for x in y: print(x)":      blockBody,
		"for x in y: print(x)\n":    blockDone,
		"format = 1":                blockDone,
		"if_ = 1":                   blockDone,
		"match x:":                  blockBody,
		"match x: # why":            blockBody,
		"match = 1":                 blockDone,
		"match(x)":                  blockDone,
		"class C: pass":             blockBody,
		"x = (\n\nif_)":             blockDone,
		"x = \"\"\"\nif a:\n\"\"\"": blockDone, // the if is in a string
		")":                         blockDone,
	} {
		if got := blockOf(strings.Split(text, "\n")); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}

// TestSplitCells: the marks of the percent format, kept so that line numbers
// count from them.
func TestSplitCells(t *testing.T) {
	for text, want := range map[string][]string{
		"":                           nil,
		"# %%\n\n# %%":               nil,
		"1":                          {"1"},
		"1\n# %%\n2":                 {"1\n", "# %%\n2"},
		"#%% a\n1\n# %% b\n2\n":      {"#%% a\n1\n", "# %% b\n2\n"},
		"x = '''\n# %%\n'''":         {"x = '''\n", "# %%\n'''"}, // as the editors do
		"  # %%\n1":                  {"  # %%\n1"},
		"# % no mark\n1":             {"# % no mark\n1"},
		"# %% [markdown]\n# text\n1": {"# %% [markdown]\n# text\n1"},
	} {
		if got := splitCells(text); !slices.Equal(got, want) {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}

// TestSizes: what --limit reads, in bytes.
func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "512B": 512, "1K": 1 << 10, "1KiB": 1 << 10, "1kB": 1000, "256MiB": 256 << 20, "256M": 256 << 20,
		"2 GiB": 2 << 30, "3GB": 3e9, "1TiB": 1 << 40,
		"": 0, "0": 0, "-1": 0, "1.5GiB": 0, "KiB": 0, "9999999999G": 0, "1kib": 0, "1PiB": 0,
	} {
		got, err := policy.ParseLimit("memory", text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q gives %d, %v, want %d", text, got, err, want)
		}
	}
}

// TestLimitFlagPrintsWhatItReads: the printed form can be given again.
func TestLimitFlagPrintsWhatItReads(t *testing.T) {
	var first, second limitFlag
	if err := first.Set("memory=256MiB, tasks=64,cpu=1m"); err != nil {
		t.Fatal(err)
	}
	if err := first.Set("tmp=1GiB,tasks=65"); err != nil {
		t.Fatal(err)
	}
	if err := second.Set(first.String()); err != nil || first != second {
		t.Errorf("%q gives %q, %v", first.String(), second.String(), err)
	}
}
