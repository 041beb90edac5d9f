package kernel

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Skill is a directory below a skill root, and why it was skipped if it was.
type Skill struct {
	Name    string `json:"name"`   // of the directory
	Module  string `json:"module"` // the import name; empty when skipped
	Dir     string `json:"dir"`
	Skipped string `json:"skipped,omitempty"`
}

// Skills looks through the roots, or through the default ones when roots is
// nil. A skill is a directory with a SKILL.md and exactly one package in src.
func Skills(roots []string) []Skill {
	if roots == nil {
		home, _ := os.UserHomeDir()
		roots = skillRoots(home)
	}
	var found []Skill
	seen := map[string]bool{}
	for _, root := range roots {
		entries, err := os.ReadDir(root)
		if err != nil {
			continue
		}
		for _, e := range entries {
			dir := filepath.Join(root, e.Name())
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				continue
			}
			s := Skill{Name: e.Name(), Dir: dir}
			s.Module, s.Skipped = skillModule(dir)
			if s.Skipped == "" && seen[s.Module] {
				s.Skipped = "an earlier root has a skill of the same import name"
			}
			seen[s.Module] = true
			found = append(found, s)
		}
	}
	return found
}

func skillModule(dir string) (module, skipped string) {
	if info, err := os.Stat(filepath.Join(dir, "SKILL.md")); err != nil || !info.Mode().IsRegular() {
		return "", "no SKILL.md"
	}
	packages, _ := filepath.Glob(filepath.Join(dir, "src", "*", "__init__.py"))
	switch len(packages) {
	case 0:
		return "", "no package in src"
	case 1:
		return filepath.Base(filepath.Dir(packages[0])), ""
	}
	var names []string
	for _, p := range packages {
		names = append(names, filepath.Base(filepath.Dir(p)))
	}
	sort.Strings(names)
	return "", "more than one package in src: " + strings.Join(names, ", ")
}

const toolText = `Run Python in a persistent interpreter. Variables, imports and functions stay from call to call; the value of the last expression is shown. Top-level await works. json, re, os, sys, subprocess, Path and preflight(repo, path, n=4) need no import.`

// ToolDescription is what a model is told of the tool; it ends with the skills
// when there are any.
func ToolDescription(opts Options) string { return describeTool(opts, "") }

// describeTool puts what extensions say before the skills.
func describeTool(opts Options, prompt string) string {
	text := toolText
	if prompt != "" {
		text += "\n\n" + prompt
	}
	var modules []string
	for _, s := range Skills(opts.SkillRoots) {
		if s.Skipped == "" {
			modules = append(modules, s.Module)
		}
	}
	if len(modules) == 0 {
		return text
	}
	return text + "\n\nImportable skill modules: " + strings.Join(modules, ", ") + " — pre-imported in namespace; help(x) for docs."
}
