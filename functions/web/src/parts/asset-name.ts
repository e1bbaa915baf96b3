import type { Schemas } from "../api/client.ts";
import { isolated } from "./isolated.ts";

/** What people call an asset: the name of a directory's credential is made of ids. */
export const assetName = ({ name, credential }: Pick<Schemas["Asset"], "name" | "credential">): string =>
  [credential?.applicationName, credential?.displayName]
    .flatMap((one) => one || [])
    .map(isolated)
    .join(": ") || name;
