package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// Application is the entity of one application: it lives while the application
// is deployed, and shows what it waits for. What is deployed is the database's
// to say: an update only tells it to look again, so that updates may come
// twice, late or out of order. Whoever closes it by hand sees it again after
// the next sweep, for as long as the application is deployed.
func Application(ctx workflow.Context, in AppInput) error {
	a := &application{ctx: ctx, in: in}
	a.waits.header = fmt.Sprintf("application **%s** in lattice **%s**\n\n", in.Key.Name, in.Key.Lattice)
	a.waits.shown = in.Resume.shown()
	if err := a.listen(); err != nil {
		return err
	}
	for {
		if err := a.look(); err != nil {
			return err
		}
		if !a.known.IsDeployed && a.quiet() {
			return nil
		}
		if err := workflow.Await(ctx, func() bool { return a.wanted > a.seen || a.tooLong() }); err != nil {
			return err
		}
		if a.tooLong() {
			return workflow.NewContinueAsNewError(ctx, api.AppWorkflow, AppInput{Key: in.Key, Resume: resume(a.waits.shown)})
		}
	}
}

// application is the state of one Application workflow.
type application struct {
	ctx    workflow.Context
	in     AppInput
	wanted int64              // the newest revision told of
	seen   int64              // the newest revision told of when the latest look began
	known  ledger.Application // as of the latest look
	waits  waits
}

// listen takes updates. They only say that something changed.
func (a *application) listen() error {
	return workflow.SetUpdateHandlerWithOptions(a.ctx, api.UpdateRevise, func(_ workflow.Context, r api.AppRevision) error {
		a.wanted = max(a.wanted, r.Revision)
		return nil
	}, workflow.UpdateHandlerOptions{
		Description: `look at what is deployed; sent by the engine after every deploy, undeploy and delete. Input: {"revision": 1}`,
	})
}

// look reads what is deployed, and shows whether it waits.
func (a *application) look() error {
	a.seen = a.wanted
	if err := callEngine(a.ctx, "read what is deployed", ActivityLoadApplication, a.in.Key, &a.known); err != nil {
		return err
	}
	switch w := a.known.Wait; {
	case !a.known.IsDeployed:
		return a.waits.clear(a.ctx, "not deployed")
	case w == nil:
		return a.waits.clear(a.ctx, "version `"+a.known.Deployed+"` is deployed")
	default:
		return a.waits.declare(a.ctx, wait{
			kind: w.Kind, code: w.Code, reason: w.Reason, since: w.Since,
			next: "when a host appears",
			hint: fmt.Sprintf("start a host in lattice `%s`, or undeploy with `tidewait app undeploy %s --lattice %[1]s`", a.in.Key.Lattice, a.in.Key.Name),
		})
	}
}

// quiet reports whether nothing has come that is not looked at yet.
func (a *application) quiet() bool { return a.wanted == a.seen && workflow.AllHandlersFinished(a.ctx) }

// tooLong reports whether the history is to be begun anew, at a moment when
// nothing is under way.
func (a *application) tooLong() bool {
	return workflow.GetInfo(a.ctx).GetContinueAsNewSuggested() && a.quiet()
}

// shown is the wait that search attributes still tell of; they outlive the run.
func (r AppResume) shown() wait {
	return wait{kind: r.Kind, code: r.Code, since: r.Since}
}

func resume(w wait) AppResume { return AppResume{Kind: w.kind, Code: w.code, Since: w.since} }

// AppAttributes are the search attributes an application's workflow is started
// with.
func AppAttributes(key ledger.AppKey) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(AttrLattice.ValueSet(key.Lattice), AttrApp.ValueSet(key.Name))
}
