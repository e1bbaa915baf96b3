/** Behavior of Resource Graph that a test can change. */
export interface GraphSettings {
  /** Age of query results in seconds. Default 0. */
  lagSeconds: number;
  /** Whether more than 15 queries in 5 seconds of real time are throttled. Default false. */
  limited: boolean;
}

export const GRAPH_DEFAULTS: GraphSettings = { lagSeconds: 0, limited: false };
