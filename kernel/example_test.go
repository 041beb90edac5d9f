package kernel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"cellblock/kernel"
	"cellblock/kernel/host"
	"cellblock/policy"
)

// A directory of one's own, as a program would have for a session.
func directory() (dir string, remove func()) {
	dir, err := os.MkdirTemp("/var/tmp", "cellblock-example-")
	if err != nil {
		panic(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }
}

// letting is the default policy with one rule more about host calls.
func letting(rule policy.ToolRule) *policy.Document {
	doc, err := kernel.BuiltInPolicy("default")
	if err != nil {
		panic(err)
	}
	doc.Tools.Rules = append(doc.Tools.Rules, rule)
	return &doc
}

// A session keeps its state from call to call.
func Example() {
	dir, remove := directory()
	defer remove()
	s, err := kernel.Open(kernel.Options{SessionDir: dir, PythonBin: "/usr/bin/python3"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	ctx := context.Background()
	s.Call(ctx, kernel.Call{Code: "x = 6"})
	r := s.Call(ctx, kernel.Call{Code: "print('seven'); x * 7"})
	fmt.Println(r.Text())
	r = s.Call(ctx, kernel.Call{Code: "1 / 0"})
	fmt.Println(r.IsError, r.Details.Error.Name)
	// Output:
	// seven
	// 42
	// true ZeroDivisionError
}

// A run is driven step by step; here the host answers what cells ask.
func ExampleSession_Run() {
	dir, remove := directory()
	defer remove()
	s, err := kernel.Open(kernel.Options{SessionDir: dir, PythonBin: "/usr/bin/python3"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	ctx := context.Background()
	run := s.Run(ctx, kernel.Call{Code: `name = input("Who?"); print("Hello,", name)`})
	step, err := run.Step(ctx)
	for err == nil && step.State != kernel.Finished {
		var answers []kernel.Answer
		for _, q := range step.Waiting {
			fmt.Printf("%s: %s\n", q.Kind, q.Prompt)
			answers = append(answers, kernel.Answer{ID: q.ID, Text: "Ada"})
		}
		step, err = run.Step(ctx, answers...)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(step.Result.Text())
	// Output:
	// input: Who?
	// Hello, Ada
}

// A tool is code of the host's that cells may call, if the policy lets them.
func ExampleOptions_tools() {
	dir, remove := directory()
	defer remove()
	s, err := kernel.Open(kernel.Options{SessionDir: dir, PythonBin: "/usr/bin/python3",
		Policy: letting(policy.ToolRule{ID: "prices", Tool: "prices.*", Effect: policy.Allow, Reason: "prices are public"}),
		Tools: []host.Tool{{
			Name: "prices.of", Doc: "The price of a thing, in cents.", Signature: "(thing: str)",
			Schema: json.RawMessage(`{"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]}`),
			Do: func(_ context.Context, c host.Call) (json.RawMessage, error) {
				var asked struct{ Thing string }
				if err := json.Unmarshal(c.Arguments, &asked); err != nil {
					return nil, err
				}
				return json.Marshal(100 * len(asked.Thing))
			},
		}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	ctx := context.Background()
	fmt.Println(s.Call(ctx, kernel.Call{Code: `prices.of(thing="lamp") / 100`}).Text())
	fmt.Println(s.Call(ctx, kernel.Call{Code: `prices.of(thing=7)`}).IsError)
	// Output:
	// 4.0
	// true
}

// Where the policy says confirm, the host is shown the call first. Its answer holds
// for that one.
func ExampleOptions_approvals() {
	dir, remove := directory()
	defer remove()
	s, err := kernel.Open(kernel.Options{SessionDir: dir, PythonBin: "/usr/bin/python3",
		Policy: letting(policy.ToolRule{ID: "orders", Tool: "orders.delete", Effect: policy.Confirm, Reason: "it cannot be undone"}),
		Tools: []host.Tool{{
			Name: "orders.delete",
			Do:   func(context.Context, host.Call) (json.RawMessage, error) { return json.RawMessage("true"), nil },
		}},
		Approve: func(_ context.Context, a host.Approval) (bool, error) {
			fmt.Printf("%s %s: %s\n", a.Call.Tool, a.Call.Arguments, a.Reason)
			return strings.Contains(string(a.Call.Arguments), "7"), nil
		}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	ctx := context.Background()
	fmt.Println(s.Call(ctx, kernel.Call{Code: `orders.delete(id=7)`}).Text())
	r := s.Call(ctx, kernel.Call{Code: `orders.delete(id=8)`})
	fmt.Println(r.Details.Error.Name)
	// Output:
	// orders.delete {"id":7}: it cannot be undone
	// True
	// orders.delete {"id":8}: it cannot be undone
	// HostError
}

// A batch runs calls of several sessions at once, up to a bound.
func ExampleBatch() {
	var jobs []kernel.Job
	for i := range 3 {
		dir, remove := directory()
		defer remove()
		s, err := kernel.Open(kernel.Options{SessionDir: dir, PythonBin: "/usr/bin/python3"})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer s.Close()
		jobs = append(jobs, kernel.Job{Session: s, Call: kernel.Call{Code: fmt.Sprintf("%d ** 2", i+10)}})
	}
	for _, r := range kernel.NewBatch(2).Call(context.Background(), jobs...) {
		fmt.Println(r.Text())
	}
	// Output:
	// 100
	// 121
	// 144
}

// A checkpoint keeps what was decided in a run. When the call begins again, an
// effect that it had is not repeated.
func ExampleRun_Checkpoint() {
	dir, remove := directory()
	defer remove()
	options := kernel.Options{SessionDir: dir, PythonBin: "/usr/bin/python3",
		Policy: letting(policy.ToolRule{ID: "mail", Tool: "mail.*", Effect: policy.Allow, Reason: "an example"}),
		Tools: []host.Tool{
			{Name: "mail.send", Do: func(context.Context, host.Call) (json.RawMessage, error) {
				fmt.Println("sent")
				return json.RawMessage("true"), nil
			}},
			{Name: "mail.wait"}, // answered by who drives the run
		}}
	call := kernel.Call{Code: `mail.send(to="Ada"); mail.wait()`}
	ctx := context.Background()

	s, err := kernel.Open(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	run := s.Run(ctx, call)
	step, err := run.Step(ctx)
	for err == nil && step.State == kernel.Progress {
		step, err = run.Step(ctx)
	}
	saved, err2 := run.Checkpoint()
	s.Close() // as if the program ended here
	if err != nil || err2 != nil {
		fmt.Println(err, err2)
		return
	}

	if s, err = kernel.Open(options); err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	if run, err = s.RunFrom(ctx, call, saved); err != nil {
		fmt.Println(err)
		return
	}
	for step, err = run.Step(ctx); err == nil && step.State != kernel.Finished; {
		var answers []kernel.Answer
		for _, q := range step.Waiting {
			answers = append(answers, kernel.Answer{ID: q.ID, Value: json.RawMessage(`"Ada has answered"`)})
		}
		step, err = run.Step(ctx, answers...)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(step.Result.Text())
	// Output:
	// sent
	// 'Ada has answered'
}
