// Package ads is the xDS client: it asks one management server (istiod or any
// other that speaks aggregated discovery) for resources of any type, incremental
// where the server can, and tells its subscribers what changed. It keeps what it
// was told for as long as the server is away; it never concludes that something
// is gone from silence or from a broken connection. What the resources mean is
// not its business.
//
// A Client runs one goroutine of its own (Run), in which every handler is called,
// and two per stream: one that receives and one that sends, so that neither side
// of a stream can block the other. While Run's reads many resources, it waits for
// as many as there are processors.
package ads
