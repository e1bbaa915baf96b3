/** What the API's words mean, for filters, lists and the picture alike. */
import type { Schemas } from "../../api/client.ts";

type Dependency = Schemas["Dependency"];

/** How it is known that somebody uses an asset. */
export const STRENGTHS = {
  references: "its configuration names the asset",
  entitled: "it may read it",
  observed: "a log has seen it",
} as const satisfies Record<Dependency["strength"], string>;

/** What a new version of the asset does to who uses it. */
export const REFRESHES = {
  automatic: "takes it by itself",
  action: "takes it when told to",
  blind: "nobody can see when it takes it",
  willBreak: "goes on with the old one, and breaks",
} as const satisfies Record<Dependency["refresh"]["how"], string>;
