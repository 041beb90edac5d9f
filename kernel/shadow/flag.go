package shadow

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// flags says which files of a host are executed or loaded by themselves, by
// somebody other than who put them there. The first line that fits counts.
var flags = []struct {
	suffix string   // of the path, at the beginning of a component
	dir    string   // that is somewhere above it
	ext    []string // with which the name ends
	why    string
}{
	{dir: ".git/hooks", why: "git runs it"},
	{suffix: ".git/config", why: "git runs programs that it names"},
	{suffix: ".gitconfig", why: "git runs programs that it names"},
	{suffix: ".config/git/config", why: "git runs programs that it names"},
	{ext: []string{".pth"}, why: "Python executes it at each start"},
	{ext: []string{".pyc", ".pyo"}, why: "Python executes it in the place of a source file"},
	{suffix: "sitecustomize.py", why: "Python imports it at each start"},
	{suffix: "usercustomize.py", why: "Python imports it at each start"},
	{dir: ".cellblock/extensions", ext: []string{".py"}, why: "cellblock runs it outside of the jail"},
	{suffix: "conftest.py", why: "pytest imports it"},
	{suffix: "setup.py", why: "pip executes it"},
	{dir: "site-packages", ext: []string{".py", ".so", ".pyc"}, why: "Python programs import it"},
	{dir: "dist-packages", ext: []string{".py", ".so", ".pyc"}, why: "Python programs import it"},
	{suffix: ".bashrc", why: "a shell reads it at its start"},
	{suffix: ".bash_profile", why: "a shell reads it at its start"},
	{suffix: ".bash_login", why: "a shell reads it at its start"},
	{suffix: ".bash_logout", why: "a shell reads it at its end"},
	{suffix: ".bash_aliases", why: "a shell reads it at its start"},
	{suffix: ".profile", why: "a shell reads it at its start"},
	{suffix: ".bash_completion", why: "a shell reads it at its start"},
	{suffix: ".inputrc", why: "a shell reads it at its start"},
	{suffix: ".tcshrc", why: "a shell reads it at its start"},
	{suffix: ".cshrc", why: "a shell reads it at its start"},
	{suffix: ".kshrc", why: "a shell reads it at its start"},
	{suffix: ".zshrc", why: "a shell reads it at its start"},
	{suffix: ".zshenv", why: "a shell reads it at its start"},
	{suffix: ".zprofile", why: "a shell reads it at its start"},
	{suffix: ".zlogin", why: "a shell reads it at its start"},
	{dir: ".config/fish", why: "a shell reads it at its start"},
	{suffix: "etc/profile", why: "a shell reads it at its start"},
	{dir: "etc/profile.d", why: "a shell reads it at its start"},
	{suffix: "etc/bash.bashrc", why: "a shell reads it at its start"},
	{suffix: "etc/environment", why: "every login takes it over"},
	{suffix: ".xprofile", why: "a desktop reads it at each login"},
	{suffix: ".xinitrc", why: "a desktop reads it at each login"},
	{suffix: ".xsession", why: "a desktop reads it at each login"},
	{suffix: ".xsessionrc", why: "a desktop reads it at each login"},
	{dir: ".config/environment.d", why: "every login takes it over"},
	{dir: "dbus-1/services", why: "D-Bus starts what it names"},
	{dir: "dbus-1/system-services", why: "D-Bus starts what it names"},
	{suffix: ".forward", why: "mail is handed to programs that it names"},
	{suffix: ".procmailrc", why: "mail is handed to programs that it names"},
	{suffix: ".pam_environment", why: "every login takes it over"},
	{dir: "systemd", ext: []string{".service", ".timer", ".socket", ".path", ".mount", ".automount", ".conf"}, why: "systemd starts what it names"},
	{dir: "etc/init.d", why: "it runs when the host starts"},
	{suffix: "etc/rc.local", why: "it runs when the host starts"},
	{suffix: "etc/crontab", why: "cron runs what it names"},
	{dir: "etc/cron.d", why: "cron runs what it names"},
	{dir: "etc/cron.hourly", why: "cron runs it"},
	{dir: "etc/cron.daily", why: "cron runs it"},
	{dir: "etc/cron.weekly", why: "cron runs it"},
	{dir: "etc/cron.monthly", why: "cron runs it"},
	{dir: "var/spool/cron", why: "cron runs what it names"},
	{dir: "var/spool/at", why: "at runs it"},
	{suffix: ".ssh/authorized_keys", why: "it lets somebody log in"},
	{suffix: ".ssh/authorized_keys2", why: "it lets somebody log in"},
	{suffix: ".ssh/config", why: "ssh runs programs that it names"},
	{suffix: ".ssh/rc", why: "sshd runs it at each login"},
	{dir: "etc/ssh", why: "sshd believes it"},
	{dir: "etc/sudoers.d", why: "it gives rights"},
	{suffix: "etc/sudoers", why: "it gives rights"},
	{dir: "etc/pam.d", why: "it decides who logs in"},
	{suffix: "etc/passwd", why: "it decides who logs in"},
	{suffix: "etc/shadow", why: "it decides who logs in"},
	{suffix: "etc/group", why: "it gives rights"},
	{suffix: "etc/ld.so.preload", why: "every program loads what it names"},
	{suffix: "etc/ld.so.conf", why: "every program loads what it leads to"},
	{dir: "etc/ld.so.conf.d", why: "every program loads what it leads to"},
	{dir: "etc/udev/rules.d", why: "udev runs what it names"},
	{dir: "etc/modprobe.d", why: "it decides what Linux loads"},
	{dir: "etc/apt/apt.conf.d", why: "apt runs programs that it names"},
	{dir: "autostart", ext: []string{".desktop"}, why: "a desktop starts it at each login"},
	{suffix: ".npmrc", why: "npm runs programs that it names"},
	{suffix: ".vimrc", why: "vim executes it at its start"},
	{dir: ".vim", why: "vim executes it at its start"},
	{suffix: ".emacs", why: "emacs executes it at its start"},
	{dir: ".emacs.d", why: "emacs executes it at its start"},
	{suffix: ".gdbinit", why: "gdb executes it at its start"},
	{suffix: ".hgrc", why: "hg runs programs that it names"},
	{dir: ".hg", ext: []string{"hgrc"}, why: "hg runs programs that it names"},
	{dir: ".ipython", ext: []string{".py", ".ipy"}, why: "IPython executes it at its start"},
	{suffix: ".pythonrc", why: "Python executes it where PYTHONSTARTUP names it"},
	{suffix: ".screenrc", why: "screen runs programs that it names"},
	{suffix: ".tmux.conf", why: "tmux runs programs that it names"},
	{dir: ".config/nvim", why: "nvim executes it at its start"},
	{suffix: "Makefile", why: "make runs what is in it"},
	{dir: ".vscode", ext: []string{".json"}, why: "an editor runs what it names"},
	{suffix: ".envrc", why: "direnv executes it"},
	{dir: "bin", why: "it lies where programs are looked for"},
	{dir: "sbin", why: "it lies where programs are looked for"},
	{ext: []string{".so"}, why: "programs load it"},
}

// flag says why the host would execute or load by itself what a change puts there.
// A link, or a directory that comes from elsewhere, decides what lies at each path
// below its own.
func (l *Layer) flag(c Change) string {
	if why := FlagOf(c.Path); why != "" || c.New.Type != "link" && (c.New.Type != "directory" || c.Kind != Renamed) {
		return why
	}
	if why := leadsTo(c.Path); why != "" || c.New.Type == "link" {
		return why
	}
	fd, err := hostDir(c.From)
	if err != nil {
		return "" // a conflict says so
	}
	defer unix.Close(fd)
	in := arriving{}
	in.directory(fd, c.Path, 0)
	return in.why
}

// leadsTo says what the host would execute or load below a path, as the table of
// flags tells from the path's last parts: .git leads to .git/hooks.
func leadsTo(p string) string {
	for _, f := range flags {
		whole := strings.Split(strings.Trim(f.dir+"/"+f.suffix, "/"), "/")
		for n := 1; n <= len(whole); n++ {
			// The whole of a suffix is a file's own name, which FlagOf has looked at.
			if start := strings.Join(whole[:n], "/"); start != "" && strings.HasSuffix(p, "/"+start) {
				return "it leads to files of which is known: " + f.why
			}
		}
	}
	return ""
}

// arriving looks for what is flagged in a directory of the host by the paths that its
// files are about to have.
type arriving struct {
	count int
	why   string
}

func (m *arriving) directory(fd int, as string, depth int) {
	list, err := names(fd)
	if m.count += len(list); err != nil || m.count > maxEntries || depth > maxDepth {
		m.why = "not all that is in it can be looked at"
		return
	}
	for _, name := range list {
		at := path.Join(as, name)
		if m.why = FlagOf(at); m.why == "" {
			if in, err := openDir(fd, name, 0); err == nil {
				m.directory(in, at, depth+1)
				unix.Close(in)
			}
		}
		if m.why != "" {
			return
		}
	}
}

// FlagOf says why the host would execute or load what lies at a path by itself,
// some time later and with somebody's rights; empty for no reason known. It looks
// at the name alone: what is in a file decides nothing.
func FlagOf(p string) string {
	name := path.Base(p)
	for _, f := range flags {
		switch {
		case f.suffix != "" && p != "/"+f.suffix && !strings.HasSuffix(p, "/"+f.suffix):
		case f.dir != "" && !strings.Contains(path.Dir(p)+"/", "/"+f.dir+"/"):
		case f.ext != nil && !slices.ContainsFunc(f.ext, func(e string) bool { return strings.HasSuffix(name, e) }):
		default:
			return f.why
		}
	}
	return ""
}
