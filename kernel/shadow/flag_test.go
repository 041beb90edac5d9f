package shadow

import (
	"path"
	"strings"
	"testing"
)

// run are paths of files that some program of a host looks for by their names.
var run = map[string]string{
	"git": `r/.git r/.git/hooks/pre-commit r/.git/config r/.git/config.worktree r/.git/modules/sub/hooks/post-checkout
		r/.git/modules/deep/er/hooks/pre-push r/.git/modules/sub/config r/.git/modules/a/b/config r/.git/worktrees/w/config.worktree r/.git/worktrees/w/commondir
		srv/repo.git/hooks/update srv/repo.git/config etc/gitconfig home/u/.gitconfig home/u/.config/git/config
		usr/share/git-core/templates/hooks/pre-commit r/.husky/pre-commit r/.pre-commit-config.yaml`,
	"programs": `usr/libexec/git-core/git-status usr/lib/git-core/git-remote-https usr/libexec/sudo/x usr/local/bin/tool usr/sbin/x bin/sub/x`,
	"python": `usr/lib/python3.11/os.py usr/lib64/python3.9/json/decoder.py v/lib/python3/site-packages/x.py usr/lib/python3/dist-packages/a/b.py
		v/site-packages/a/b.so x/a.pth x/__pycache__/m.cpython-311.pyc r/conftest.py r/setup.py r/pyproject.toml x/sitecustomize.py v/pyvenv.cfg
		etc/pip.conf home/u/.config/pip/pip.conf home/u/.ipython/profile_default/startup/a.py r/.cellblock/extensions/a/main.py`,
	"libraries": `lib/x.so lib/libc.so.6 lib/x86_64-linux-gnu/libpython3.11.so.1.0 etc/ld.so.cache etc/ld.so.preload etc/ld.so.conf etc/ld.so.conf.d/x.conf
		lib64/ld-linux-x86-64.so.2 usr/share/perl/5.36/strict.pm usr/lib/x86_64-linux-gnu/perl-base/Carp.pm usr/lib/ruby/3.1.0/json.rb
		r/node_modules/a/index.js r/node_modules/a/b/x.node lib/modules/6.1/kernel/x.ko.xz etc/nsswitch.conf`,
	"shells": `home/u/.bashrc home/u/.bash_logout home/u/.zshrc home/u/.zlogin home/u/.zlogout home/u/.profile home/u/.inputrc etc/profile etc/profile.d/x.sh etc/bash.bashrc
		etc/zsh/zshrc etc/zsh/zshenv etc/zsh/zprofile etc/zsh/zlogin etc/zshrc etc/zshenv home/u/.config/fish/functions/ls.fish
		usr/share/bash-completion/completions/ls r/.envrc`,
	"start": `etc/init.d/x etc/rc.local etc/rc2.d/S01x etc/inittab etc/default/ssh etc/crontab etc/anacrontab etc/cron.d/x etc/cron.daily/x var/spool/cron/crontabs/root var/spool/at/x
		etc/update-motd.d/10-x etc/NetworkManager/dispatcher.d/x usr/lib/NetworkManager/dispatcher.d/pre-up.d/x
		etc/network/if-up.d/x etc/network/if-down.d/x etc/network/if-pre-up.d/x etc/network/if-post-down.d/x etc/network/interfaces
		etc/systemd/system/x.service home/u/.config/systemd/user/default.target.wants/x.service lib/systemd/system-generators/x etc/systemd/system/x.service.d/o.conf
		usr/lib/systemd/system-sleep/x etc/tmpfiles.d/x.conf usr/lib/udev/rules.d/1.rules etc/modprobe.d/x.conf etc/sysctl.d/1.conf usr/lib/binfmt.d/x.conf
		etc/logrotate.d/x boot/vmlinuz-6.1 boot/grub/grub.cfg home/u/.config/autostart/x.desktop usr/share/dbus-1/services/x.service
		home/u/.local/share/applications/x.desktop`,
	"rights": `etc/passwd etc/shadow etc/group etc/sudoers etc/sudoers.d/x etc/pam.d/su etc/ssh/sshd_config home/u/.ssh/authorized_keys home/u/.ssh/rc home/u/.ssh/config
		home/u/.ssh/environment usr/share/polkit-1/rules.d/x.rules etc/polkit-1/rules.d/x.rules`,
	"packages": `etc/apt/apt.conf.d/x etc/apt/apt.conf etc/apt/sources.list.d/x.list etc/yum.repos.d/x.repo var/lib/dpkg/info/x.postinst`,
	"builds": `r/Makefile r/makefile r/GNUmakefile r/rules.mk r/package.json home/u/.npmrc r/.cargo/config.toml r/.cargo/config r/build.rs
		r/.github/workflows/ci.yml r/.gitlab-ci.yml r/Jenkinsfile r/CMakeLists.txt`,
	"editors": `home/u/.vimrc home/u/.vim/plugin/x.vim home/u/.config/nvim/init.lua home/u/.emacs home/u/.emacs.d/init.el r/.vscode/tasks.json home/u/.gdbinit home/u/.tmux.conf
		home/u/.config/tmux/tmux.conf`,
}

// data are paths of files that nobody looks for, also where a part of their names is
// like one of the above.
const data = `notes.md data.csv src/main.c os.py src/os.py src/lib/os.py python/os.py lib/python/os.py main.py README image.png a.json config config.toml src/config
	docs/hooks/use.md hooks/pre-commit r/.gitignore r/.gitattributes r/.github/CODEOWNERS r/.gitmodules a.git.txt notes.so.md x.sold libc.so-notes cabin/x combine robin/notes
	etc/hosts etc/hostname etc/motd var/log/syslog var/lib/app/state.db srv/www/index.html profile bashrc zshrc crontab Makefile.md mymakefile makefile.txt
	cargo/config.toml ssh/config home/u/.ssh/known_hosts home/u/.cache/x home/u/.bash_history systemd/notes.md lib/data.bin lib/js/app.js index.js package-lock.json
	if-up.txt dispatcher.d.md boot/notes.md arch/boot/main.c lib/modules/menu.js`

func TestFlagOf(t *testing.T) {
	for subject, paths := range run {
		for _, p := range strings.Fields(paths) {
			if FlagOf("/"+p) == "" {
				t.Errorf("%s: %s is flagged nowhere", subject, p)
			}
			if at := "/srv/some/where/" + p; FlagOf(at) == "" {
				t.Errorf("%s: %s is not flagged", subject, at)
			}
		}
	}
	for _, p := range strings.Fields(data) {
		if why := FlagOf("/srv/some/where/" + p); why != "" {
			t.Errorf("%s is flagged: %s", p, why)
		}
	}
}

// TestFlagsFit: each name of the table is one that it fits, and one that leads to it is
// known from each directory above. Nothing is there twice.
func TestFlagsFit(t *testing.T) {
	seen, reasons := map[string]bool{}, map[string]bool{}
	for _, f := range flags {
		if reasons[f.why] {
			t.Errorf("%q is there twice", f.why)
		}
		reasons[f.why] = true
		for _, text := range f.files {
			if seen[text] || strings.HasPrefix(text, "/") || strings.HasPrefix(text, "*/") || strings.Contains(text, "**/**") {
				t.Errorf("%q is there twice, or is no end of a path that says something", text)
			}
			seen[text] = true
			for _, between := range []string{"", "one/", "one/two/"} {
				p := strings.ReplaceAll(text, "**/", between)
				if strings.HasSuffix(p, "/") {
					p += between + "file"
				}
				p = "/at/" + strings.NewReplacer("[0-9S]", "3", "[0-9]", "3", "[gxz]", "x", "[lm]", "m", "*", "any").Replace(p)
				if FlagOf(p) == "" {
					t.Errorf("%s: %s does not fit", text, p)
				}
				for above := path.Dir(p); above != "/at"; above = path.Dir(above) {
					if flagOf(above, "link") == "" {
						t.Errorf("%s: of %s nobody knows that it leads there", text, above)
					}
				}
			}
		}
	}
}

func TestFlagOfDirectoriesAndLinks(t *testing.T) {
	for _, p := range []string{"/r/.git", "/r/Makefile", "/r/.bashrc", "/x/a.pth", "/x/a.so", "/etc/cron.d", "/r/.git/modules/config"} {
		if why := flagOf(p, "directory"); why != "" {
			t.Errorf("%s: a directory of that name is no such file: %s", p, why)
		}
	}
	for _, p := range []string{"/usr/bin/sub", "/r/.git/hooks/sub"} {
		if flagOf(p, "directory") == "" {
			t.Errorf("%s: its rights are not flagged", p)
		}
	}
	for _, p := range []string{"/r/.git", "/r/.git/modules", "/r/.git/modules/sub", "/r/.git/modules/sub/hooks", "/usr/lib/python3.11", "/usr/lib/python3.11/json", "/etc/zsh", "/etc/NetworkManager"} {
		if flagOf(p, "link") == "" {
			t.Errorf("%s: a link there leads to what is flagged", p)
		}
	}
	for _, p := range []string{"/srv/data", "/r/src", "/r/docs/hooks", "/r/modules"} {
		if why := flagOf(p, "link"); why != "" {
			t.Errorf("%s: %s", p, why)
		}
	}
}
