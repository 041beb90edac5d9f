package tools_test

import data.tools

test_shared_data_is_read if {
	tools.decision.effect == "allow" with input as {"tool": "files.read", "arguments": {"path": "/srv/x"}}
}

test_nothing_else_is if {
	tools.decision.effect == "deny" with input as {"tool": "files.read", "arguments": {"path": "/etc/x"}}
}

todo_test_purposes if false
