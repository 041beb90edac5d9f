// Package profiles holds what comes with the product as data, in which every
// entry says why it is there: jail profiles, which say what a session's jail is
// made of in every mode; system call profiles; and policies, which say what a
// session may do.
//
//	profile, err := profiles.Get("strict")
//	calls, err := profiles.Seccomp(profile.Seccomp.Profile)
//	document, err := profiles.Policy("strict")
//
// A jail profile is a JSON document:
//
//	{
//	  "name": "default",
//	  "description": "…",
//	  "seccomp": {"profile": "compatible", "reason": "…"},
//	  "optional": [{"feature": "cgroup", "reason": "…"}]
//	}
//
// It is read strictly: an unknown key or a missing reason is an error. Policies
// are read by package policy.
//
// # Limitations
//
// A profile says nothing about files, limits and variables: that is the policy's
// matter, and stands there alone.
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

//go:embed *.json seccomp/*.json policies/*.yaml
var files embed.FS

// maxDocument bounds a profile's text, in bytes.
const maxDocument = 1 << 20

// Profile is what a jail is like in every mode.
type Profile struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Seccomp     Calls      `json:"seccomp"`
	Optional    []Optional `json:"optional"`
	// Fork says why workers kept ready may be forked from a common parent, whose address
	// layout they then share; empty where they may not.
	Fork string `json:"fork,omitempty"`
}

// Calls names the profile of system calls, one of SeccompNames.
type Calls struct {
	Profile string `json:"profile"`
	Reason  string `json:"reason"`
}

// Optional is a feature of the host whose absence degrades the jail, which is
// then said, instead of failing its start. The names are those of jail.Feature.
type Optional struct {
	Feature string `json:"feature"`
	Reason  string `json:"reason"`
}

// List returns the names of the profiles, in alphabetical order.
func List() []string { return names(".", ".json") }

// SeccompNames returns the names of the profiles of system calls.
func SeccompNames() []string { return names("seccomp", ".json") }

// PolicyNames returns the names of the policies.
func PolicyNames() []string { return names("policies", ".yaml") }

func names(dir, ending string) []string {
	entries, err := files.ReadDir(dir)
	if err != nil {
		panic(err) // embedded
	}
	var list []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ending); ok {
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

// Policy returns the text of the policy of that name, in YAML.
func Policy(name string) ([]byte, error) {
	if !slices.Contains(PolicyNames(), name) {
		return nil, fmt.Errorf("policy %q: unknown, there are %s", name, strings.Join(PolicyNames(), ", "))
	}
	return files.ReadFile(path.Join("policies", name+".yaml"))
}

// Parse reads a jail profile strictly.
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
	for _, optional := range p.Optional {
		if err := reason("optional", optional.Feature, optional.Reason); err != nil {
			return err
		}
	}
	return nil
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
