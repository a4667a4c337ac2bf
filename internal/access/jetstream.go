package access

// js is a subject of JetStream's API.
func js(suffix string) string { return "$JS.API." + suffix }

// bucketStream is the stream behind a bucket of the object store.
func bucketStream(bucket string) string { return "OBJ_" + bucket }

// metas and chunks are the subjects of a bucket: what describes its objects, and what
// they are made of.
func metas(bucket string) string  { return "$O." + bucket + ".M.*" }
func chunks(bucket string) string { return "$O." + bucket + ".C.*" }

func info(stream string) string { return js("STREAM.INFO." + stream) }

// makes lets a stream be made and changed. Whoever may do that may give it the subjects
// of others, and so read what they say.
func makes(stream string) []string {
	return []string{info(stream), js("STREAM.CREATE." + stream), js("STREAM.UPDATE." + stream)}
}

// opens lets a bucket be opened.
func opens(bucket string) []string { return []string{info(bucketStream(bucket))} }

// reads lets objects be read whose names are known; "*" is every bucket.
func reads(bucket string) []string {
	stream := bucketStream(bucket)
	if bucket == "*" {
		stream = "*"
	}
	return append(consumes(stream), js("DIRECT.GET."+stream+"."+metas(bucket)), js("CONSUMER.CREATE."+stream+".*."+chunks(bucket)))
}

// lists lets the objects of a bucket be listed.
func lists(bucket string) []string {
	stream := bucketStream(bucket)
	return append(consumes(stream), js("CONSUMER.CREATE."+stream+".*."+"$O."+bucket+".M.>"))
}

// writes lets objects be put and removed.
func writes(bucket string) []string {
	return []string{metas(bucket), chunks(bucket), js("STREAM.PURGE." + bucketStream(bucket))}
}

// pulls lets a stream be read as a whole.
func pulls(stream string) []string {
	return append(consumes(stream), info(stream), js("CONSUMER.CREATE."+stream+".>"), js("CONSUMER.MSG.NEXT."+stream+".*"))
}

// consumes lets a consumer that was made be used and removed.
func consumes(stream string) []string {
	return []string{js("CONSUMER.INFO." + stream + ".*"), js("CONSUMER.DELETE." + stream + ".*"), "$JS.FC." + stream + ".>"}
}
