package shadow

// flags say which files of a host are executed, loaded or believed by themselves, by
// somebody other than who put them there. The first line that fits counts.
//
// A file is named by the end of its path, wherever that begins. In it * stands for any
// part of a name, ** for any directories or none, and a / at the end for all that lies
// beneath.
//
// Here is what some program looks for by that name without having been told to. Source
// files are not, but where programs import them from; nor is what has an effect only
// where some configuration gives it one (.gitattributes): that is here itself.
var flags = []struct {
	why   string
	files []string
}{
	{"git runs it", []string{".git/**/hooks/", "*.git/hooks/", "git-core/templates/hooks/", ".husky/"}},
	{"git runs programs that it names", []string{
		".git/**/config", ".git/**/config.worktree", "*.git/config", "*.git/config.worktree", ".gitconfig", ".config/git/config", "etc/gitconfig",
		".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml", "lefthook.yaml"}},
	// A file of that name leads to a directory with hooks and configuration, and so do
	// these two in the directory of a worktree.
	{"git takes what it runs from where it leads", []string{".git", ".git/**/commondir", ".git/**/gitdir"}},
	{"hg runs programs that it names", []string{".hgrc", ".hg/**/hgrc", ".hg/hgrc-not-shared", "etc/mercurial/"}},

	{"Python executes it at each start", []string{"*.pth"}},
	{"Python executes it in the place of a source file", []string{"*.pyc", "*.pyo"}},
	{"Python imports it at each start", []string{"sitecustomize.py", "usercustomize.py"}},
	{"Python takes its library from where it says", []string{"pyvenv.cfg", "python*._pth"}},
	{"cellblock runs it outside of the jail", []string{".cellblock/extensions/**/*.py"}},
	{"pytest imports it", []string{"conftest.py"}},
	{"pip executes it", []string{"setup.py"}},
	{"pip runs programs that it names", []string{"pyproject.toml"}},
	{"pip installs from where it says", []string{"pip.conf", ".pydistutils.cfg"}},
	{"Python programs import it", []string{
		"site-packages/**/*.py", "site-packages/**/*.so", "dist-packages/**/*.py", "dist-packages/**/*.so",
		"lib/python[0-9]*/**/*.py", "lib64/python[0-9]*/**/*.py", "lib/python[0-9]*.zip"}},
	{"programs import it", []string{"lib/**/perl*/**/*.p[lm]", "share/perl*/**/*.p[lm]", "lib/ruby/**/*.rb", "share/lua/**/*.lua", "share/nodejs/**/*.js"}},
	{"IPython executes it at its start", []string{".ipython/**/*.py", ".ipython/**/*.ipy"}},
	{"Jupyter runs what it names", []string{".jupyter/**/*.py", ".jupyter/**/*.json", "jupyter/kernels/**/kernel.json"}},
	{"Python executes it where PYTHONSTARTUP names it", []string{".pythonrc", ".pythonrc.py"}},

	{"a shell reads it at its start", []string{
		".bashrc", ".bash_profile", ".bash_login", ".bash_aliases", ".profile", ".bash_completion", ".inputrc", ".tcshrc", ".cshrc", ".login", ".kshrc", ".mkshrc",
		".zshrc", ".zshenv", ".zprofile", ".zlogin", ".oh-my-zsh/", ".config/fish/",
		"etc/profile", "etc/profile.d/", "etc/bash.bashrc", "etc/bashrc", "etc/inputrc", "etc/csh.cshrc", "etc/csh.login", "etc/csh/", "etc/ksh.kshrc", "etc/mkshrc",
		"etc/zsh/", "etc/zshrc", "etc/zshenv", "etc/zprofile", "etc/zlogin", "etc/fish/"}},
	{"a shell reads it at its end", []string{".bash_logout", ".zlogout", ".logout", "etc/bash.bash_logout", "etc/csh.logout", "etc/zlogout"}},
	{"a shell reads it for a completion", []string{"etc/bash_completion", "bash_completion.d/", "bash-completion/", "site-functions/", "vendor-completions/", "vendor_completions.d/", "vendor_conf.d/"}},
	{"every login takes it over", []string{"etc/environment", "environment.d/", ".pam_environment", ".ssh/environment", "etc/security/", "etc/locale.conf", "etc/default/locale"}},
	{"it runs at each login", []string{"etc/update-motd.d/"}},
	{"direnv executes it", []string{".envrc", ".config/direnv/"}},
	{"mise runs programs that it names", []string{"mise.toml", ".mise.toml", ".config/mise/"}},

	{"a desktop reads it at each login", []string{".xprofile", ".xinitrc", ".xserverrc", ".xsession", ".xsessionrc", "etc/X11/"}},
	{"a desktop starts it at each login", []string{"autostart/**/*.desktop", "autostart-scripts/", "plasma-workspace/env/"}},
	{"a desktop starts what it names", []string{"applications/**/*.desktop", "xsessions/*.desktop", "wayland-sessions/*.desktop", ".config/i3/", ".config/sway/", ".config/hypr/"}},
	{"D-Bus starts what it names", []string{"dbus-1/services/", "dbus-1/system-services/"}},
	{"mail is handed to programs that it names", []string{".forward", ".procmailrc", ".mailcap", "etc/mailcap", "etc/aliases", "etc/procmailrc"}},

	{"systemd starts what it names", []string{
		"systemd/**/*.service", "systemd/**/*.timer", "systemd/**/*.socket", "systemd/**/*.path", "systemd/**/*.mount", "systemd/**/*.automount", "systemd/**/*.swap",
		"systemd/**/*.target", "systemd/**/*.conf"}},
	{"systemd runs it", []string{
		"systemd/system-generators/", "systemd/user-generators/", "systemd/system-environment-generators/", "systemd/user-environment-generators/",
		"systemd/system-sleep/", "systemd/system-shutdown/"}},
	{"systemd makes files and users that it names", []string{"tmpfiles.d/", "sysusers.d/"}},
	{"it runs when the host starts", []string{
		"etc/init.d/", "etc/rc.local", "etc/rc.d/", "etc/rc[0-9S].d/", "etc/inittab", "etc/init/", "etc/default/", "etc/sysconfig/", "etc/initramfs-tools/", "etc/grub.d/",
		"etc/kernel/", "initramfs-tools/hooks/", "initramfs-tools/scripts/"}},
	{"the host starts with it", []string{"boot/grub/", "boot/grub2/", "boot/efi/", "boot/loader/", "boot/vmlinuz*", "boot/initrd*", "boot/initramfs*"}},
	{"it runs when a network comes or goes", []string{
		"NetworkManager/dispatcher.d/", "if-up.d/", "if-down.d/", "if-pre-up.d/", "if-post-down.d/", "etc/network/interfaces", "etc/network/interfaces.d/",
		"networkd-dispatcher/", "etc/ppp/", "dhclient-enter-hooks.d/", "dhclient-exit-hooks.d/", "etc/dhcp/", "resolvconf/update.d/", "dhcpcd-hooks/", "etc/openvpn/", "etc/wireguard/"}},
	{"cron runs what it names", []string{"etc/crontab", "etc/anacrontab", "etc/cron.d/", "var/spool/cron/"}},
	{"cron runs it", []string{"etc/cron.hourly/", "etc/cron.daily/", "etc/cron.weekly/", "etc/cron.monthly/", "etc/cron.yearly/", "etc/periodic/"}},
	{"at runs it", []string{"var/spool/at/"}},
	{"logrotate runs programs that it names", []string{"etc/logrotate.conf", "etc/logrotate.d/"}},
	{"a daemon runs programs that it names", []string{"etc/rsyslog.conf", "etc/rsyslog.d/", "etc/inetd.conf", "etc/xinetd.conf", "etc/xinetd.d/", "etc/acpi/", "etc/apcupsd/"}},
	{"udev runs what it names", []string{"udev/rules.d/"}},
	{"it decides what Linux loads", []string{"modprobe.d/", "etc/modprobe.conf", "modules-load.d/", "etc/modules", "depmod.d/", "*.ko", "*.ko.[gxz]*", "lib/modules/*/modules.*"}},
	{"it decides what Linux runs", []string{"sysctl.d/", "etc/sysctl.conf", "binfmt.d/"}},

	{"it lets somebody log in", []string{".ssh/authorized_keys", ".ssh/authorized_keys2", ".rhosts", ".shosts", ".k5login", "etc/hosts.equiv"}},
	{"ssh runs programs that it names", []string{".ssh/config"}},
	{"sshd runs it at each login", []string{".ssh/rc"}},
	{"sshd believes it", []string{"etc/ssh/"}},
	{"it gives rights", []string{"etc/sudoers", "etc/sudoers.d/", "etc/sudo.conf", "etc/doas.conf", "etc/doas.d/", "etc/group", "etc/gshadow", "polkit-1/", "dbus-1/system.d/"}},
	{"it decides who logs in", []string{"etc/pam.d/", "etc/pam.conf", "etc/passwd", "etc/shadow"}},

	{"every program loads what it names", []string{"etc/ld.so.preload", "etc/nsswitch.conf"}},
	{"every program loads what it leads to", []string{"etc/ld.so.conf", "etc/ld.so.conf.d/", "etc/ld.so.cache"}},
	{"programs load what it names", []string{"gconv-modules", "gconv-modules.d/", "gconv-modules.cache", "openssl.cnf"}},

	{"apt runs programs that it names", []string{"etc/apt/apt.conf", "etc/apt/apt.conf.d/", "etc/dpkg/"}},
	{"dpkg runs it", []string{"var/lib/dpkg/info/"}},
	{"the host installs from where it says", []string{"etc/apt/", "etc/yum.conf", "etc/yum.repos.d/", "etc/dnf/", "etc/yum/", "etc/pacman.conf", "etc/pacman.d/", "etc/apk/"}},

	{"npm runs programs that it names", []string{".npmrc", "etc/npmrc", "package.json", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs"}},
	{"Node programs load it", []string{"node_modules/**/*.js", "node_modules/**/*.cjs", "node_modules/**/*.mjs", "node_modules/**/*.node"}},
	{"make runs what is in it", []string{"Makefile", "makefile", "GNUmakefile", "*.mk"}},
	{"a build runs what it names", []string{
		".cargo/config", ".cargo/config.toml", ".cargo/env", "build.rs", ".config/go/env", "CMakeLists.txt", "Rakefile", "rakefile", "Gemfile", ".bundle/config",
		"justfile", "Justfile", ".justfile", "noxfile.py", "tox.ini", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle-wrapper.properties",
		"gradle-wrapper.jar", ".gradle/init.d/", "pom.xml", ".mvn/"}},
	{"a build server runs what it names", []string{
		".github/workflows/", ".github/actions/", ".gitlab-ci.yml", "Jenkinsfile", ".travis.yml", ".circleci/", ".drone.yml", ".woodpecker/", ".woodpecker.yml", ".buildkite/",
		"azure-pipelines.yml", "bitbucket-pipelines.yml", ".forgejo/workflows/", ".gitea/workflows/"}},

	{"vim executes it at its start", []string{".vimrc", ".gvimrc", ".exrc", ".vim/", "etc/vim/", ".config/vim/", "share/vim/"}},
	{"nvim executes it at its start", []string{".config/nvim/", ".nvimrc", ".nvim.lua", "etc/xdg/nvim/", "share/nvim/"}},
	{"emacs executes it at its start", []string{".emacs", ".emacs.el", ".emacs.d/", ".config/emacs/", "etc/emacs/", "share/emacs/", ".dir-locals.el"}},
	{"an editor runs what it names", []string{".vscode/**/*.json", "*.code-workspace", ".config/Code/User/", ".devcontainer/", ".devcontainer.json", ".idea/workspace.xml", ".idea/runConfigurations/", ".zed/"}},
	{"an editor loads it", []string{".vscode/extensions/", ".vscode-server/"}},
	{"a debugger executes it at its start", []string{".gdbinit", ".gdbearlyinit", ".config/gdb/", "etc/gdb/", "*-gdb.py", "*-gdb.gdb", ".lldbinit", ".pdbrc"}},
	{"an interpreter executes it at its start", []string{".irbrc", ".pryrc", ".Rprofile", ".julia/config/startup.jl", ".perldb", ".ghci", ".sqliterc", ".psqlrc"}},
	{"screen runs programs that it names", []string{".screenrc", "etc/screenrc"}},
	{"tmux runs programs that it names", []string{".tmux.conf", ".config/tmux/", "etc/tmux.conf"}},
	{"less runs it", []string{".lessfilter"}},
	{"gpg runs programs that it names", []string{".gnupg/*.conf"}},
	{"programs that log in elsewhere run what it names", []string{".docker/config.json", ".kube/config", ".aws/config"}},

	{"it lies where programs are looked for", []string{"bin/", "sbin/"}},
	{"programs run it", []string{"libexec/", "lib/git-core/"}},
	{"programs load it", []string{"*.so", "*.so.[0-9]*"}},
}
