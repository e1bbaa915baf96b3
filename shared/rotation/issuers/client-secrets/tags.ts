import type { RotationRecord } from "../../rotation.ts";

/** Returns the tags of a version, or of a held copy, that stores the client secret `keyId`. */
export const tagsOf = ({ appId = "" }: RotationRecord, keyId: string): [[string, string], [string, string]] => [
  ["entra-key-id", keyId],
  ["entra-app-id", appId],
];
