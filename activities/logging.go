package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/logkey"
	"tidewait/workflows"
)

// Logging has workers say when workflows and runs begin and end, and gives the
// loggers of activities what their input is about. What follows from the id of a
// workflow and the name of a task queue is added by [logkey.Temporal].
type Logging struct {
	interceptor.InterceptorBase
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (*Logging) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &loggedActivity{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}}
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (*Logging) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &loggedWorkflow{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

// about is what the logger of an activity says beside Temporal's own.
type about struct{}

type loggedActivity struct {
	interceptor.ActivityInboundInterceptorBase
}

func (a *loggedActivity) Init(outbound interceptor.ActivityOutboundInterceptor) error {
	return a.Next.Init(&activityLogger{ActivityOutboundInterceptorBase: interceptor.ActivityOutboundInterceptorBase{Next: outbound}})
}

func (a *loggedActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if keys := keysOf(in.Args); len(keys) > 0 {
		ctx = context.WithValue(ctx, about{}, keys)
	}
	if activity.GetInfo(ctx).ActivityType.Name != workflows.ActivityExecuteRun {
		return a.Next.ExecuteActivity(ctx, in)
	}
	begun, logger := time.Now(), activity.GetLogger(ctx)
	logger.Info("a run begins")
	out, err := a.Next.ExecuteActivity(ctx, in)
	took := time.Since(begun).Round(time.Millisecond)
	if err != nil {
		logger.Info("a run is not gone on with here", "took", took, "error", err)
	} else {
		logger.Info("a run has ended", "took", took)
	}
	return out, err
}

type activityLogger struct {
	interceptor.ActivityOutboundInterceptorBase
}

func (l *activityLogger) GetLogger(ctx context.Context) log.Logger {
	logger := l.Next.GetLogger(ctx)
	if keys, ok := ctx.Value(about{}).([]any); ok {
		return log.With(logger, keys...)
	}
	return logger
}

// keysOf is what the input of an activity says that its workflow's id does not.
func keysOf(args []any) []any {
	if len(args) == 0 {
		return nil
	}
	switch in := args[0].(type) {
	case workflows.ExecuteRunInput:
		return []any{logkey.Launch, in.Launch, logkey.Run, in.Machine.RunID}
	case workflows.StopRunInput:
		return []any{logkey.Run, in.RunID}
	case workflows.JudgeRunInput:
		return []any{logkey.Run, in.RunID}
	case workflows.CommitResultsInput:
		return []any{logkey.Launch, in.Launch, logkey.Run, in.RunID, logkey.Node, in.Node}
	case workflows.OpenCheckoutInput:
		return []any{logkey.Launch, in.Launch}
	}
	return nil
}

type loggedWorkflow struct {
	interceptor.WorkflowInboundInterceptorBase
}

func (w *loggedWorkflow) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	logger := workflow.GetLogger(ctx) // says nothing while it is replayed
	logger.Info("a workflow begins")
	out, err := w.Next.ExecuteWorkflow(ctx, in)
	switch {
	case err == nil:
		logger.Info("a workflow has ended")
	case workflow.IsContinueAsNewError(err):
		logger.Debug("a workflow begins its history anew")
	default:
		logger.Info("a workflow has ended", "error", err)
	}
	return out, err
}
