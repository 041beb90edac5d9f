package host

// Role says which kind of worker makes a call.
type Role string

// The roles. Only the host gives them.
const (
	RoleSandbox   Role = "sandbox"   // runs the model's cells
	RoleExtension Role = "extension" // runs the operator's extensions
)

// Purpose says what a cell is run for.
type Purpose string

// The purposes. The zero value counts as Interactive; anything else is refused.
const (
	Interactive Purpose = "interactive"
	Maintenance Purpose = "maintenance"
	Eval        Purpose = "eval"
)

// Known reports whether p is one of the purposes.
func (p Purpose) Known() bool { return p == Interactive || p == Maintenance || p == Eval }

// Identity is who makes a call, as the host knows it.
type Identity struct {
	Session    string  `json:"session"`
	Workspace  string  `json:"workspace"` // the session's directory
	Generation int     `json:"generation"`
	Cell       int     `json:"cell"`
	Scope      string  `json:"scope"` // of the cell in which the call began
	Purpose    Purpose `json:"purpose"`
	Role       Role    `json:"role"`
}
