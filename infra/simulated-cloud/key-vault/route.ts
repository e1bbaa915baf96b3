import type { ServiceResponse } from "../http.ts";
import type { Permission } from "./errors.ts";
import type { VaultCall } from "./request-context.ts";

/** An operation of the data plane. */
export interface Route {
  operation: string;
  permission: Permission;
  name?: string;
  version?: string;
  answer(call: VaultCall): ServiceResponse;
}
