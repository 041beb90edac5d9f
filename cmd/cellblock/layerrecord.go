package main

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"cellblock/policy/audit"
)

// layerSuffix ends the names of records of commands about layers: they are of no
// session, and no command that looks for the last one means them.
const layerSuffix = "-shadow.jsonl"

// recordFlags say where a command about a layer is recorded.
type recordFlags struct{ audit, auditSync string }

func (f *recordFlags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&f.audit, "audit", "", "file of the command's record, or none (default a new one in $XDG_STATE_HOME/cellblock/audit)")
	set.StringVar(&f.auditSync, "audit-sync", "bounds", "when records are forced to the disk: bounds (start and end), each or none; a kill loses none")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("audit-sync", cobra.FixedCompletions([]string{"bounds", "each", "none"}, cobra.ShellCompDirectiveNoFileComp)))
}

// open opens the record; nil for none.
func (f *recordFlags) open(cmd *cobra.Command) (*audit.Log, error) {
	sync, err := audit.ParseSync(f.auditSync)
	if err != nil {
		return nil, usage(cmd, err)
	}
	path := f.audit
	switch path {
	case "none":
		return nil, nil
	case "":
		dir := auditDir()
		if dir == "" {
			return nil, errors.New("audit: no home to keep a record in; --audit FILE names one, --audit none goes without")
		}
		path = filepath.Join(dir, strings.TrimSuffix(auditName(), ".jsonl")+layerSuffix)
	}
	return audit.Open(path, audit.Options{Sync: sync})
}
