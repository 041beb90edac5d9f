package integration

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// pageGroup is one table of SECURITY.md's list of attacks: what a test tries.
type pageGroup struct {
	title string
	test  string   // whose subtests the rows are
	modes []string // in which
	about string   // what is tried, in a sentence
	wall  string   // what refuses or ends it
	rows  []pageRow
}

// pageRow is one attempt. control says where, or how, the same act is shown to work; a
// row without one proves nothing.
type pageRow struct{ tried, ends, control string }

// fewestAttacks is how many attempts the list has at least.
const fewestAttacks = 150

// String says where an attempt is shown to work.
func (c control) String() string {
	return map[control]string{plain: "outside", namespaced: "outside, as root of new namespaces", asRoot: "outside, as root"}[c]
}

// pageGroups are the tables that the tests of attacks go through, each as it is.
func pageGroups() []pageGroup {
	of := func(rows []attack, otherwise ...string) (page []pageRow) {
		for _, a := range rows {
			refused := a.refused
			if refused == nil {
				refused = otherwise
			}
			page = append(page, pageRow{a.name, strings.Join(refused, ", "), a.where.String()})
		}
		return page
	}
	groups := []pageGroup{
		{"Changing files outside of the session directory", "TestAttacksOnFiles", everyMode,
			"Each leaves the host as it was. Under `enforce` Linux refuses it with one of these errors; under `shadow` a layer takes it, and the host has nothing of it; under `report` it is done, as outside, and told of. The main thread, another thread, a fork and another program each try it, and each is one record (`TestAttacksOnFilesByEveryActor`).",
			"read-only mounts, and Landlock beside them", of(fileAttacks())},
		{"Reading what a policy covers", "TestAttacksOnSecrets", everyMode, "A key in a home directory is looked for on every way that leads to it.", "a cover over its directory", nil},
		{"What lives beside a session", "TestReachOfASession", everyMode, "Canaries of each kind are put on the host.", "namespaces and the view of the host's files, which lack it", nil},
		{"Processes of the same user", "TestAttacksOnProcesses", everyMode, "A process outside, of the very id that the worker has, goes on as if nothing had been tried.",
			"the process namespace", of(processAttacks, "ESRCH", "ENOENT")},
		{"From one session to another", "TestAttacksBetweenSessions", everyMode, "What one session leaves under a well-known name is looked for in another.", "namespaces and private places", nil},
		{"System calls", "TestAttacksOnLinux", everyMode, "Calls that no session needs, and walls that are to be taken down.", "seccomp, and the lack of every capability", of(linuxAttacks())},
		{"Sockets and their options", "TestAttacksOnSockets", everyMode, "Families and options that reach code in Linux which no session needs.", "seccomp", of(socketAttacks())},
		{"/proc, /sys and /dev", "TestAttacksOnProc", everyMode, "Files that show or change more than a session.", "covers, read-only mounts and namespaces", of(procAttacks())},
		{"Around the outlet", "TestAttacksOnTheOutlet", []string{"enforce"}, "A session that may reach one server asks for others. None of them notices a connection, and what leads out of the session is one record.", "a network without routes, and the outlet", nil},
		{"Host calls and the wire", "TestAttacksOnTheDoor", []string{"enforce"}, "A cell does what it likes with Python and with the wire. Nothing is carried out that its session and purpose have not been given, and another session notices nothing.", "the door and the wire's bounds, in the launcher", nil},
		{"Memory, disk, processes, time, and what the launcher reads", "TestAttacksOnBounds", []string{"enforce"}, "Each ends at a bound, its reply says how, and the session goes on or says that its state is lost; another session and the launcher notice nothing.", "limits, the cell's time, and bounds on what the launcher reads", nil},
	}
	at := func(test string) *pageGroup {
		return &groups[slices.IndexFunc(groups, func(g pageGroup) bool { return g.test == test })]
	}
	for _, a := range readAttacks {
		g := at("TestAttacksOnSecrets")
		g.rows = append(g.rows, pageRow{a.name, "not seen", plain.String()})
	}
	for _, a := range reachAttacks {
		g := at("TestReachOfASession")
		g.rows = append(g.rows, pageRow{a.name, code(a.want), a.where.String()})
	}
	for _, a := range betweenAttacks {
		g := at("TestAttacksBetweenSessions")
		g.rows = append(g.rows, pageRow{a.name, "not found", "found in the session that left it"})
	}
	for _, a := range outletAttacks {
		g := at("TestAttacksOnTheOutlet")
		if strings.HasPrefix(a.name, outletControl) {
			continue
		}
		g.rows = append(g.rows, pageRow{a.name, code(a.want), "the same, of the server that is listed"})
	}
	for _, a := range doorAttacks {
		g := at("TestAttacksOnTheDoor")
		ends := "nothing gained, a well-formed reply"
		switch {
		case a.name == doorControl:
			continue
		case a.ends != "":
			ends = "its worker is ended: " + code(a.ends)
		case a.says != "":
			ends = code(a.says)
		}
		g.rows = append(g.rows, pageRow{a.name, ends, "two calls of a tool that is allowed"})
	}
	for _, a := range boundAttacks {
		g := at("TestAttacksOnBounds")
		ends := strings.Join(slices.DeleteFunc(slices.Clone(a.ends), func(s string) bool { return s == "" }), ", ")
		if ends = code(ends); ends == code("") {
			ends = "a well-formed reply"
		}
		row := pageRow{tried: a.name, ends: ends}
		if a.within != "" {
			row.control = "the same, within bounds"
		}
		g.rows = append(g.rows, row)
	}
	return groups
}

// doorControl is the row of doorAttacks that makes calls which are allowed.
const doorControl = "the control"

// outletControl begins the names of outletAttacks that are of the listed server.
const outletControl = "control: "

func code(text string) string { return "`" + strings.ReplaceAll(text, "`", "'") + "`" }

// page renders the tables.
func page(groups []pageGroup) string {
	total := 0
	var b strings.Builder
	cell := strings.NewReplacer("|", "\\|", "\n", " ").Replace
	for _, g := range groups {
		total += len(g.rows)
		fmt.Fprintf(&b, "\n### %s\n\n%s\nWhat refuses it: %s. Modes: `%s`. Test: `%s`.\n\n| Tried | Ends in | The control |\n|---|---|---|\n", g.title, g.about, g.wall, strings.Join(g.modes, "`, `"), g.test)
		for _, r := range g.rows {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(r.tried), cell(r.ends), cell(r.control))
		}
	}
	var beside strings.Builder
	for _, a := range attackList {
		if !onlyOf(a.tests, groups) {
			fmt.Fprintf(&beside, "- %s: `%s`\n", a.attack, strings.ReplaceAll(a.tests, ", Test", "`, `Test"))
		}
	}
	return fmt.Sprintf("%d attempts from within a session, each with its control: the same act, where nothing is in its way.\nThe tests go through these very tables (`go test ./integration -run TestTheAttackPage -update` writes them anew).\n", total) +
		b.String() + "\n### With tests of their own\n\n" + beside.String()
}

// onlyOf reports whether a list of tests names only those whose rows the groups have.
func onlyOf(tests string, groups []pageGroup) bool {
	for _, name := range strings.Split(tests, ", Test") {
		name, _, _ = strings.Cut("Test"+strings.TrimPrefix(name, "Test"), "/")
		if !slices.ContainsFunc(groups, func(g pageGroup) bool { return g.test == name }) {
			return false
		}
	}
	return true
}

// The lines of SECURITY.md between which the tables stand.
const (
	pageBegins = "<!-- attacks: written by TestTheAttackPage -->\n"
	pageEnds   = "<!-- end of attacks -->\n"
)

// TestTheAttackPage: SECURITY.md has the attacks that the tests try, each with a control,
// and no other.
func TestTheAttackPage(t *testing.T) {
	require(t, needSources)
	groups := pageGroups()
	total, seen := 0, map[string]bool{}
	for _, g := range groups {
		if len(g.rows) == 0 {
			t.Errorf("%s: no attempts", g.test)
		}
		for _, r := range g.rows {
			total++
			if r.control == "" {
				t.Errorf("%s/%s has no control", g.test, r.tried)
			}
			if r.ends == "" || g.wall == "" {
				t.Errorf("%s/%s: nothing says what refuses it", g.test, r.tried)
			}
			if id := g.test + "/" + r.tried; seen[id] {
				t.Errorf("%s is there twice: one of them is hidden by the other's name", id)
			} else {
				seen[id] = true
			}
		}
	}
	if total < fewestAttacks {
		t.Errorf("%d attempts, want %d at least", total, fewestAttacks)
	}
	if !slices.ContainsFunc(doorAttacks, func(a doorAttack) bool { return a.name == doorControl && a.ran > 0 }) {
		t.Errorf("no row of doorAttacks is %q", doorControl)
	}
	if !slices.ContainsFunc(outletAttacks, func(a outletAttack) bool { return strings.HasPrefix(a.name, outletControl) }) {
		t.Errorf("no row of outletAttacks begins with %q", outletControl)
	}
	const path = "../SECURITY.md"
	text := readFile(t, path)
	before, rest, found := strings.Cut(text, pageBegins)
	has, after, closed := strings.Cut(rest, pageEnds)
	if !found || !closed {
		t.Fatalf("%s lacks the lines %q and %q", path, pageBegins, pageEnds)
	}
	want := page(groups)
	if has == want {
		return
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+pageBegins+want+pageEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s does not have the attacks that the tests try (-update writes them):\n%s", path, diffLines(has, want))
}
