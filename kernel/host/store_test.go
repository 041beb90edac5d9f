package host

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// The rules about outcomes are checked here again, whatever a worker has checked.
func TestTheRulesOfTheBuiltInMethods(t *testing.T) {
	store := NewMemoryStore()
	store.Put(Evidence{Ref: "log:1", Kind: "log", Body: json.RawMessage(`{"lines": 3, "at": "x"}`)})
	store.Put(Evidence{Ref: "bare", Kind: "note"})
	store.Put(Evidence{Ref: "odd", Kind: "note", Body: json.RawMessage(`{"ref": "log:1"}`)})
	d := NewDoor(Config{Decide: allow})
	if err := d.Set(BuiltIn, Methods(store)); err != nil {
		t.Fatal(err)
	}
	who := Identity{Session: "s", Workspace: "/w", Scope: "s/1", Cell: 1, Purpose: Maintenance, Role: RoleSandbox}
	call := func(as Identity, tool, arguments string) (string, string) {
		t.Helper()
		value, failed := d.Call(t.Context(), Request{Identity: as, Tool: tool, Arguments: json.RawMessage(arguments)})
		if failed != nil {
			return "", failed.Code + " " + failed.Message
		}
		return string(value), ""
	}
	if got, _ := call(who, "workspace.info", `{}`); got != `{"path":"/w","session_id":"s"}` {
		t.Error(got)
	}
	if got, _ := call(who, "evidence.resolve", `{"refs":["bare","log:1","none","odd","bare"]}`); got !=
		`{"resolved":[{"ref":"bare","kind":"note"},{"ref":"log:1","kind":"log","lines":3,"at":"x"}],"unavailable":[{"ref":"none","reason":"nothing is known of it"},`+
			`{"ref":"odd","reason":"what the store has of it names another reference or kind"}]}` {
		t.Error(got)
	}
	got, _ := call(who, "maintenance.originate", `{"purpose":"p","reason":"r","evidence_refs":["log:1"],"impact":{"n":1}}`)
	var made struct {
		ID string `json:"work_item_id"`
	}
	items := store.WorkItems()
	if err := json.Unmarshal([]byte(got), &made); err != nil || len(items) != 1 || items[0].ID != made.ID || items[0].Workspace != "/w" || string(items[0].Impact) != `{"n":1}` {
		t.Fatalf("%s: %v %+v", got, err, items)
	}
	item := `"work_item_id":"` + made.ID + `",`
	for arguments, want := range map[string]string{
		`{` + item + `"outcome":"done"}`:                                                 "no-change, needs-evidence, deferred, candidate-failed, activated",
		`{` + item + `"outcome":"no-change"}`:                                            "needs a reason",
		`{` + item + `"outcome":"deferred","reason":" "}`:                                "needs a reason",
		`{` + item + `"outcome":"candidate-failed"}`:                                     "needs a reason",
		`{` + item + `"outcome":"needs-evidence","missing_refs":[]}`:                     "missing_refs or revisit_deadline_ms",
		`{` + item + `"outcome":"activated"}`:                                            "candidate_revision",
		`{` + item + `"outcome":"activated","Candidate_Revision":"x"}`:                   CodeArguments,
		`{` + item + `"outcome":"deferred","reason":"r","trigger_ms":-1}`:                CodeArguments,
		`{"work_item_id":"w-0","outcome":"deferred","reason":"r"}`:                       "no work item",
		`{` + item + `"outcome":"no-change","reason":"r"}`:                               "",
		`{` + item + `"outcome":"needs-evidence","revisit_deadline_ms":0}`:               "",
		`{` + item + `"outcome":"activated","candidate_revision":"c","reason":"r"}`:      "",
		`{` + item + `"outcome":"deferred","reason":"r","check_receipts":[{"ok":true}]}`: "",
	} {
		_, why := call(who, "maintenance.assess", arguments)
		if (why == "") != (want == "") || !strings.Contains(why, want) {
			t.Errorf("%s: %q, want %q", arguments, why, want)
		}
	}
	if n := len(store.Assessments(made.ID)); n != 4 {
		t.Errorf("%d assessments", n)
	}
	other := who
	other.Workspace = "/other"
	if _, why := call(other, "maintenance.assess", `{`+item+`"outcome":"no-change","reason":"r"}`); !strings.Contains(why, "no work item") {
		t.Errorf("from another workspace: %s", why)
	}
	other = who
	other.Purpose = Interactive
	if _, why := call(other, "maintenance.originate", `{"purpose":"p","reason":"r","evidence_refs":[]}`); !strings.HasPrefix(why, CodeDenied) {
		t.Errorf("for another purpose: %s", why)
	}
}

func TestAMemoryStoreIsBounded(t *testing.T) {
	store := NewMemoryStore()
	w := WorkItem{ID: "w-1", Workspace: "/w", Reason: strings.Repeat("x", 1<<20)}
	var err error
	for range maxMemory>>20 + 1 {
		err = store.Originate(t.Context(), w)
	}
	if !errors.Is(err, ErrStoreFull) {
		t.Errorf("%v", err)
	}
}
