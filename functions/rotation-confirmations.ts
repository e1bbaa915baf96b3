import type { Confirmations } from "../shared/platform/http/endpoint.ts";
import type { Services } from "./services.ts";

/**
 * Returns the confirmations that a rotation would need, for its dry run, which needs none. As in `guarded` of the endpoints:
 * only a rotation that names the vault secrets to write needs some.
 */
export const confirmationsFor = async (
  targets: readonly string[] | undefined,
  { gate }: Pick<Services, "gate">,
): Promise<Confirmations> => (targets === undefined ? { stepUp: false, approval: false } : await gate.confirmations());
