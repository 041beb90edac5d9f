package tools

default decision := {"effect": "deny", "reasons": ["no rule of the module allows it"]}

decision := {"effect": "allow", "reasons": ["shared data is there to be read"]} if {
	input.tool == "files.read"
	startswith(input.arguments.path, "/srv/")
}

decision := {"effect": "deny", "reasons": ["mail is for extensions"]} if {
	input.tool == "mail.send"
	input.role == "sandbox"
}

decision := {"effect": "allow", "obligations": ["sign"]} if {
	input.tool == "mail.send"
	input.role == "extension"
}
