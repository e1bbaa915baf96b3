/** What Resource Graph does that a test may want otherwise. */
export interface GraphSettings {
  /** Answers show resources as they were so long ago. Default 0. */
  lagSeconds: number;
  /** More than 15 queries in 5 seconds of the machine's time are refused. Default false. */
  limited: boolean;
}

export const GRAPH_DEFAULTS: GraphSettings = { lagSeconds: 0, limited: false };
