package pyruntime

import (
	"embed"
	"path/filepath"
	"strconv"
	"sync"
)

//go:embed extension/boot.py extension/cellblock/*.py extension/_extension/*.py
var extension embed.FS

// ExtensionPackages are the directories of modules beside an extension worker's
// boot.py. The framing is the sandbox worker's.
func ExtensionPackages() []string { return []string{"cellblock", "_extension", Package} }

// extensionSource is the extension worker's source.
var extensionSource = source{
	part{extension, "extension", nil},
	part{embedded, "runtime", []string{"_cellblock/__init__.py", "_cellblock/codec.py", "_cellblock/wire.py"}},
}

// ExtensionDigest is Digest for the source of extension workers.
var ExtensionDigest = sync.OnceValue(func() string { return extensionSource.digest() })

// WriteExtensionTo is WriteTo for the source of extension workers.
func WriteExtensionTo(dir string) error { return extensionSource.writeTo(dir) }

// ExtensionCommand is Command for an extension worker. Isolated mode (-I) leaves the
// working directory, the environment's paths and user packages out of sys.path.
func ExtensionCommand(python, dir string, fd int) []string {
	return []string{python, "-I", "-B", "-X", "utf8", filepath.Join(dir, "boot.py"), strconv.Itoa(fd)}
}
