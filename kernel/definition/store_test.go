package definition

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func keep(t *testing.T, dir, name string, sources ...string) {
	t.Helper()
	s, err := Open(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	k := Kept{Directory: "/srv/x"}
	for _, source := range sources {
		k.Statements = append(k.Statements, Statement{Kind: "constant", Names: []string{source[:1]}, Source: source})
	}
	if err := s.Save(k); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "definitions")
	for _, name := range []string{"notes", "a/../b", "ü \"quoted\"", strings.Repeat("x", MaxName)} {
		keep(t, dir, name, "K = 'é'", "L = 2")
		s, err := Open(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		k, err := s.Load()
		if err != nil || k.Name != name || len(k.Statements) != 2 || k.Statements[0].Source != "K = 'é'" || !slices.Equal(k.Names(), []string{"K", "L"}) {
			t.Errorf("%q: %+v, %v", name, k, err)
		}
		s.Close()
	}
	all, err := List(dir)
	if err != nil || len(all) != 4 {
		t.Fatalf("%d, %v", len(all), err)
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestOneHasAName(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "a"); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	if err := s.Save(Kept{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Forget(dir, "a"); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	s.Close()
	if _, err := Forget(dir, "a"); err != nil {
		t.Error(err)
	}
	if _, err := Forget(dir, "a"); err == nil {
		t.Error("forgotten twice")
	}
}

func TestSingleDefinitionsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	keep(t, dir, "a", "K = 1", "L = 2", "M = 3")
	if n, err := Forget(dir, "a", "K", "M"); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := Forget(dir, "a", "L", "K"); n != 0 || err == nil {
		t.Fatal(n, err)
	}
	if all, err := List(dir); err != nil || len(all) != 1 || !slices.Equal(all[0].Names(), []string{"L"}) {
		t.Fatalf("%+v, %v", all, err)
	}
}

// TestWhereOthersCanWriteNothingIsKept: what lies there would be run.
func TestWhereOthersCanWriteNothingIsKept(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{open, link} {
		if _, err := Open(dir, "a"); err == nil {
			t.Errorf("%s: accepted", dir)
		}
	}
}

func TestWhatIsNoFileOfDefinitionsIsRefused(t *testing.T) {
	dir := t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "x.json")
	good := `{"name":"a","statements":[{"kind":"constant","names":["K"],"source":"K = 1"}]}`
	if err := os.WriteFile(elsewhere, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func(path string) error{
		"half":            func(p string) error { return os.WriteFile(p, []byte(good[:20]), 0o600) },
		"another's":       func(p string) error { return os.WriteFile(p, []byte(strings.Replace(good, `"a"`, `"b"`, 1)), 0o600) },
		"without sources": func(p string) error { return os.WriteFile(p, []byte(strings.Replace(good, "K = 1", "", 1)), 0o600) },
		"a link":          func(p string) error { return os.Symlink(elsewhere, p) },
		"a directory":     func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		path := fileOf(dir, "a")
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, "a")
		if err != nil {
			t.Fatal(err)
		}
		if k, err := s.Load(); err == nil || !strings.Contains(err.Error(), "definitions forget") {
			t.Errorf("%s: %+v, %v", name, k, err)
		}
		s.Close()
		if _, err := Forget(dir, "a"); err != nil {
			t.Errorf("%s: forget: %v", name, err)
		}
	}
	if err := os.WriteFile(fileOf(dir, "a"), []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := List(dir); err != nil || len(all) != 1 {
		t.Errorf("control: %+v, %v", all, err)
	}
}

func TestTheOldestIsLeftOut(t *testing.T) {
	var k Kept
	for range MaxStatements + 3 {
		k.Statements = append(k.Statements, Statement{Source: "x"})
	}
	if n := k.Bound(); n != 3 || len(k.Statements) != MaxStatements {
		t.Fatal(n, len(k.Statements))
	}
	big := Statement{Source: strings.Repeat("x", MaxSource/2)}
	k.Statements = []Statement{big, {Source: "y"}, big, {Source: "z"}}
	if n := k.Bound(); n != 1 || k.Statements[0].Source != "y" {
		t.Fatal(n, len(k.Statements))
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"a","statements":[{"kind":"constant","names":["K"],"source":"K = 1"}],"others":["x"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if k, err := decode(data); err == nil && CheckName(k.Name) != nil {
			t.Errorf("%q", k.Name)
		}
	})
}
