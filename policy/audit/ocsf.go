package audit

import (
	"path"
	"strings"

	"cellblock/policy"
)

// ocsfVersion is the version of the Open Cybersecurity Schema Framework whose
// classes and numbers stand here: the first one with an action "Observed", which
// is what a denial in report mode is.
const ocsfVersion = "1.5.0"

// Classes of OCSF that records map to. The category is the class's thousands.
const (
	ocsfFile    = 1001 // File System Activity
	ocsfProcess = 1007 // Process Activity
	ocsfNetwork = 4001 // Network Activity
	ocsfAppLife = 6002 // Application Lifecycle: the session's own life
	ocsfAPI     = 6003 // API Activity: calls of a worker to the launcher
)

// ocsfActivity says which class and activity an operation is. Operations that
// are not in the table are changes of a file, as policy.ParseKind has it.
var ocsfActivity = map[string]struct{ class, activity int }{
	string(policy.Read):     {ocsfFile, 2},
	string(policy.Write):    {ocsfFile, 3},
	string(policy.Truncate): {ocsfFile, 3},
	string(policy.Create):   {ocsfFile, 1},
	string(policy.Mkdir):    {ocsfFile, 1},
	string(policy.Link):     {ocsfFile, 1},
	string(policy.Symlink):  {ocsfFile, 1},
	string(policy.Remove):   {ocsfFile, 4},
	string(policy.Rmdir):    {ocsfFile, 4},
	string(policy.Rename):   {ocsfFile, 5},
	string(policy.Utime):    {ocsfFile, 6},
	string(policy.Xattr):    {ocsfFile, 6},
	string(policy.Chmod):    {ocsfFile, 7},
	string(policy.Chown):    {ocsfFile, 7},
	string(policy.Exec):     {ocsfProcess, 1},
	"connect":               {ocsfNetwork, 1},
	"bind":                  {ocsfNetwork, 99},
	"lookup":                {ocsfNetwork, 99},
	"sendto":                {ocsfNetwork, 6},
	OpShadowCarry:           {ocsfFile, 99},
	OpShadowDrop:            {ocsfFile, 4},
	OpSessionStart:          {ocsfAppLife, 3},
	OpWorkerStart:           {ocsfAppLife, 3},
	OpSessionEnd:            {ocsfAppLife, 4},
	OpWorkerEnd:             {ocsfAppLife, 4},
	OpHostCall:              {ocsfAPI, 99},
	OpHostReturn:            {ocsfAPI, 99},
}

func ocsfOf(op string) (class, activity int) {
	if a, ok := ocsfActivity[op]; ok {
		return a.class, a.activity
	}
	if strings.Contains(op, ".") || op == OpReset || op == OpReload || op == OpInterrupt || op == OpAbort {
		return ocsfAppLife, 99
	}
	if a, ok := ocsfActivity[string(policy.ParseKind(op))]; ok {
		return a.class, a.activity
	}
	return ocsfFile, 99
}

type object = map[string]any

// ocsfEvent is a record as an event of OCSF, with the profile Security Control.
// What has no place in the schema stands in unmapped.
func ocsfEvent(r Record, host string) object {
	class, activity := ocsfOf(r.Op)
	actor := object{"session": object{"uid": r.Session}, "process": object{"name": path.Base(r.Program)}}
	if r.PID != 0 {
		actor["process"] = object{"name": path.Base(r.Program), "pid": r.PID, "file": object{"name": path.Base(r.Program), "path": r.Program, "type_id": 1}}
	}
	e := object{
		"metadata": object{
			"version": ocsfVersion, "profiles": []string{"host", "security_control"}, "sequence": r.Seq, "log_name": "audit",
			"product": object{"name": "Cellblock", "vendor_name": "Cellblock"},
		},
		"category_uid": class / 1000, "class_uid": class, "activity_id": activity, "type_uid": class*100 + activity,
		"activity_name": r.Op, "time": r.Time.UnixMilli(), "count": r.Times(),
		"severity_id": 1, "actor": actor,
		"device":   object{"hostname": host, "type_id": 0},
		"unmapped": ocsfRest(r),
	}
	if r.Reason != "" {
		e["message"] = r.Reason
	}
	if r.Rule != "" || r.Policy != "" {
		e["policy"] = object{"name": r.Rule, "uid": r.Policy}
	}
	switch r.Decision {
	case Denied:
		e["action_id"], e["disposition_id"], e["severity_id"], e["status_id"] = 2, 2, 3, 2 // Denied, Blocked, Medium, Failure
	case WouldDeny:
		e["action_id"], e["disposition_id"], e["severity_id"], e["status_id"] = 3, 17, 2, 1 // Observed, Logged, Low, Success
	case Allowed:
		e["action_id"], e["disposition_id"], e["status_id"] = 1, 1, 1
	case Incomplete:
		e["action_id"], e["disposition_id"], e["status_id"] = 1, 1, 2
	}
	switch class {
	case ocsfFile:
		e["file"] = object{"name": path.Base(r.Target), "path": r.Target, "type_id": 0}
	case ocsfProcess:
		e["process"] = object{"name": path.Base(r.Target), "file": object{"name": path.Base(r.Target), "path": r.Target, "type_id": 1}}
	case ocsfNetwork:
		e["dst_endpoint"] = object{"name": r.Target}
	case ocsfAppLife:
		e["app"] = object{"name": "Cellblock", "vendor_name": "Cellblock", "feature": object{"name": "session", "uid": r.Session}}
	case ocsfAPI:
		e["api"] = object{"operation": r.Target}
		e["src_endpoint"] = object{"name": host}
	}
	return e
}

func ocsfRest(r Record) object {
	rest := object{"source": r.Source, "prev": r.Prev}
	for name, n := range map[string]int{"generation": r.Generation, "cell": r.Cell} {
		if n != 0 {
			rest[name] = n
		}
	}
	if r.Scope != "" {
		rest["scope"] = r.Scope
	}
	if len(r.Facts) > 0 {
		rest["facts"] = r.Facts
	}
	return rest
}
