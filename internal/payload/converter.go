package payload

import (
	"context"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	commonpb "go.temporal.io/api/common/v1"
)

// Converter returns the data converter of a Temporal client: the SDK's own, and the
// codec over it. Headers are left alone: they carry ids of traces.
func Converter(c *Codec) converter.DataConverter {
	plain := converter.GetDefaultDataConverter()
	return dataConverter{
		DataConverter: converter.NewCodecDataConverter(plain, c),
		inWorkflow:    converter.NewCodecDataConverter(plain, strict{c}),
	}
}

// FailureConverter returns the failure converter of a Temporal client. With encode,
// messages and stack traces of failures are payloads too, and the codec's.
func FailureConverter(dc converter.DataConverter, encode bool) converter.FailureConverter {
	return temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{DataConverter: dc, EncodeCommonAttributes: encode})
}

// dataConverter is strict where it serves the code of a workflow.
type dataConverter struct {
	converter.DataConverter
	inWorkflow converter.DataConverter
}

// WithWorkflowContext implements converter.ContextAware.
func (d dataConverter) WithWorkflowContext(workflow.Context) converter.DataConverter {
	return d.inWorkflow
}

// WithContext implements converter.ContextAware.
func (d dataConverter) WithContext(context.Context) converter.DataConverter { return d }

// strict panics over what it cannot read. The SDK drops a signal that it cannot
// decode; a panic fails the task, which another worker, or this one when it has the
// key, does again with all signals in it.
type strict struct{ *Codec }

// Decode implements converter.PayloadCodec.
func (s strict) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	decoded, err := s.Codec.Decode(payloads)
	if err != nil {
		panic(err)
	}
	return decoded, nil
}
