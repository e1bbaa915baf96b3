import type { CheckContext } from "./context.ts";
import type { Result } from "./result.ts";

/** One outgoing call of the service. `CALLS` lists all of them. */
export interface OutgoingCall {
  /** Stable name, such as `keyVault.listSecrets`. */
  id: string;
  /** The feature that needs the call: the first cell of its row in `page`, if that page has a table of permissions. */
  feature: string;
  /** The request, as documented. */
  call: string;
  /** Everything that the identity must be permitted, as `page` names it. */
  permissions: readonly string[];
  /** Page and section that explain the permission, below docs/. */
  page: string;
  /**
   * True if the service works without the permission, or if only some resources need it. A missing permission is then no error.
   */
  optional?: true;
  /** Makes the call, or finds out by other reads whether it would work. Returns a result for each resource. */
  check(context: CheckContext): Promise<Result[]>;
}
