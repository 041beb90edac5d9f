// Package profiles holds the jail profiles that come with the product: what a
// session's jail is like in every mode, as data in which every entry says why
// it is there.
//
//	profile, err := profiles.Get("strict")
//	document, err := profiles.Seccomp(profile.Seccomp.Profile)
//
// A profile is a JSON document:
//
//	{
//	  "name": "default",
//	  "description": "…",
//	  "seccomp": {"profile": "compatible", "reason": "…"},
//	  "limits": {"memoryBytes": {"value": 2147483648, "reason": "…"}, …},
//	  "optional": [{"feature": "cgroup", "reason": "…"}],
//	  "hide": [{"path": "${home}/.ssh", "reason": "…"}],
//	  "env": [{"name": "TZ", "reason": "…"}]
//	}
//
// It is read strictly: an unknown key, a missing reason, a limit below zero or a
// path that is not absolute is an error. In paths, ${home} stands for the
// operator's home directory. A trailing * in the name of a variable matches any
// rest.
//
// # Limitations
//
// What may be written and where the network reaches is the policy's matter, and
// differs by mode; a profile cannot widen either.
package profiles

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

//go:embed *.json seccomp/*.json
var files embed.FS

// maxDocument bounds a profile's text, in bytes.
const maxDocument = 1 << 20

// Profile is what a jail is like in every mode.
type Profile struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Seccomp     Calls      `json:"seccomp"`
	Limits      Limits     `json:"limits"`
	Optional    []Optional `json:"optional"`
	Hide        []Hide     `json:"hide"`
	Env         []Env      `json:"env"`
}

// Calls names the profile of system calls, one of SeccompNames.
type Calls struct {
	Profile string `json:"profile"`
	Reason  string `json:"reason"`
}

// Limits are what a session may use. A limit left out is no limit.
type Limits struct {
	MemoryBytes   *Limit `json:"memoryBytes,omitempty"`
	Tasks         *Limit `json:"tasks,omitempty"`
	OpenFiles     *Limit `json:"openFiles,omitempty"`
	FileSizeBytes *Limit `json:"fileSizeBytes,omitempty"`
	CPUSeconds    *Limit `json:"cpuSeconds,omitempty"`
	TmpBytes      *Limit `json:"tmpBytes,omitempty"`
	OutputBytes   *Limit `json:"outputBytes,omitempty"`
}

// Limit is one limit; its unit is in its key.
type Limit struct {
	Value  int64  `json:"value"`
	Reason string `json:"reason"`
}

// Get returns the limit's value, 0 for none.
func (l *Limit) Get() int64 {
	if l == nil {
		return 0
	}
	return l.Value
}

// Optional is a feature of the host whose absence degrades the jail, which is
// then said, instead of failing its start. The names are those of jail.Feature.
type Optional struct {
	Feature string `json:"feature"`
	Reason  string `json:"reason"`
}

// Hide is a path that no session may see.
type Hide struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Env is a variable of the launcher that reaches the worker.
type Env struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// HidePaths returns the hidden paths with ${home} put in. Without a home those
// that need one are left out.
func (p Profile) HidePaths(home string) []Hide {
	var out []Hide
	for _, hide := range p.Hide {
		if rest, ok := strings.CutPrefix(hide.Path, "${home}"); ok {
			if home == "" || home == "/" {
				continue
			}
			hide.Path = path.Join(home, rest)
		}
		out = append(out, hide)
	}
	return out
}

// List returns the names of the profiles, in alphabetical order.
func List() []string { return names(".") }

// SeccompNames returns the names of the profiles of system calls.
func SeccompNames() []string { return names("seccomp") }

func names(dir string) []string {
	entries, err := files.ReadDir(dir)
	if err != nil {
		panic(err) // embedded
	}
	var list []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ".json"); ok {
			list = append(list, name)
		}
	}
	return list
}

// Get returns the profile of that name.
func Get(name string) (Profile, error) {
	document, err := Document(name)
	if err != nil {
		return Profile{}, err
	}
	return Parse(document)
}

// Document returns the text of the profile of that name.
func Document(name string) ([]byte, error) {
	if !slices.Contains(List(), name) {
		return nil, fmt.Errorf("profile %q: unknown, there are %s", name, strings.Join(List(), ", "))
	}
	return files.ReadFile(name + ".json")
}

// Seccomp returns the text of a profile of system calls, in the OCI format.
func Seccomp(name string) ([]byte, error) {
	if !slices.Contains(SeccompNames(), name) {
		return nil, fmt.Errorf("system call profile %q: unknown, there are %s", name, strings.Join(SeccompNames(), ", "))
	}
	return files.ReadFile(path.Join("seccomp", name+".json"))
}

// Parse reads a profile strictly.
func Parse(document []byte) (Profile, error) {
	var p Profile
	if len(document) > maxDocument {
		return p, fmt.Errorf("profile: %d bytes, at most %d", len(document), maxDocument)
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return Profile{}, fmt.Errorf("profile: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Profile{}, errors.New("profile: something stands after the document")
	}
	if err := p.check(); err != nil {
		return Profile{}, fmt.Errorf("profile %q: %w", p.Name, err)
	}
	return p, nil
}

func (p Profile) check() error {
	switch {
	case p.Name == "":
		return errors.New("name: missing")
	case p.Description == "":
		return errors.New("description: missing")
	case !slices.Contains(SeccompNames(), p.Seccomp.Profile):
		return fmt.Errorf("seccomp.profile %q: unknown, there are %s", p.Seccomp.Profile, strings.Join(SeccompNames(), ", "))
	}
	if err := reason("seccomp", p.Seccomp.Profile, p.Seccomp.Reason); err != nil {
		return err
	}
	for key, limit := range p.Limits.all() {
		if limit == nil {
			continue
		}
		if limit.Value <= 0 {
			return fmt.Errorf("limits.%s: %d, must be above 0; leave it out for no limit", key, limit.Value)
		}
		if err := reason("limits", key, limit.Reason); err != nil {
			return err
		}
	}
	for _, optional := range p.Optional {
		if err := reason("optional", optional.Feature, optional.Reason); err != nil {
			return err
		}
	}
	for _, hide := range p.Hide {
		if err := reason("hide", hide.Path, hide.Reason); err != nil {
			return err
		}
		rest := strings.TrimPrefix(hide.Path, "${home}")
		if !strings.HasPrefix(rest, "/") || path.Clean(rest) != rest || rest == "/" {
			return fmt.Errorf("hide %q: must be a clean absolute path, or one below ${home}", hide.Path)
		}
	}
	for _, env := range p.Env {
		if err := reason("env", env.Name, env.Reason); err != nil {
			return err
		}
		if strings.ContainsAny(env.Name, "=\x00") {
			return fmt.Errorf("env %q: not the name of a variable", env.Name)
		}
	}
	return nil
}

func (l Limits) all() map[string]*Limit {
	return map[string]*Limit{
		"memoryBytes": l.MemoryBytes, "tasks": l.Tasks, "openFiles": l.OpenFiles,
		"fileSizeBytes": l.FileSizeBytes, "cpuSeconds": l.CPUSeconds, "tmpBytes": l.TmpBytes,
		"outputBytes": l.OutputBytes,
	}
}

func reason(part, entry, text string) error {
	if entry == "" {
		return fmt.Errorf("%s: an entry without a name", part)
	}
	if strings.TrimSpace(text) == "" {
		return fmt.Errorf("%s %s: no reason given", part, entry)
	}
	return nil
}
