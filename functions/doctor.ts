import { PermissionsCheckView, permissionsCheckView } from "../shared/doctor/api.ts";
import { ok } from "../shared/platform/http/reply.ts";
import { endpoint } from "./declare.ts";

// The endpoint of the doctor, which checks the permissions of the service. The command `npm run doctor` uses the endpoint too.

const checkPermissions = endpoint({
  name: "checkPermissions",
  method: "POST",
  route: "system/permissions/check",
  summary: "Check the permissions of the service",
  description:
    "Makes each outgoing call of the service once, with the identity that the service uses for it, and returns what works and which permission is missing. Reads only, and receives no secret values. Calls up to three watched subscriptions, five of their vaults and one resource of each type. Takes up to two minutes. Requests at the same time share one check.",
  tag: "System",
  access: "admin",
  tier: "core",
  harmlessRepeat: true,
  responds: { 200: PermissionsCheckView },
  handle: async ({ caller, services }) => ok(permissionsCheckView(await services.doctor.check(caller))),
});

export const endpoints = [checkPermissions];
