package pyruntime

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// source is a tree of embedded files, put together of parts.
type source []part

// part is what lies beneath one directory; only names some of it, and nil all.
type part struct {
	files embed.FS
	root  string
	only  []string
}

// walk visits every file by its name in the tree, in a fixed order.
func (s source) walk(visit func(name string, body []byte) error) error {
	for _, p := range s {
		sub, err := fs.Sub(p.files, p.root)
		if err != nil {
			return err
		}
		err = fs.WalkDir(sub, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || p.only != nil && !slices.Contains(p.only, name) {
				return err
			}
			body, err := fs.ReadFile(sub, name)
			if err != nil {
				return err
			}
			return visit(name, body)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// digest is the SHA-256 of all names and contents, in hexadecimal.
func (s source) digest() string {
	sum := sha256.New()
	_ = s.walk(func(name string, body []byte) error { // embedded files can be read
		fmt.Fprintf(sum, "%s %d\n%s", name, len(body), body)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil))
}

// writeTo writes the tree below dir, which must exist. Files get mode 0644 and
// directories 0755.
func (s source) writeTo(dir string) error {
	return s.walk(func(name string, body []byte) error {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if parent := path.Dir(name); parent != "." {
			if err := os.MkdirAll(filepath.Join(dir, parent), 0o755); err != nil {
				return fmt.Errorf("write worker runtime: %w", err)
			}
		}
		if err := os.WriteFile(to, body, 0o644); err != nil {
			return fmt.Errorf("write worker runtime: %w", err)
		}
		return nil
	})
}
