// Checks management locks of the scopes that the deployment writes to.

import * as z from "zod";
import { type Context, existingScope, textParameter } from "../context.ts";
import { type CheckResult, counted, type Finding, quote } from "../finding.ts";

/** https://learn.microsoft.com/rest/api/resources/management-locks */
const VERSION = "2016-09-01";
const Lock = z.object({ id: z.string(), name: z.string(), properties: z.object({ level: z.string() }) });

export async function checkLocks(context: Context): Promise<CheckResult> {
  const subnets = ["functionSubnetResourceId", "privateEndpointSubnetResourceId"].map((name) =>
    textParameter(context, name),
  );
  // The deployment joins a subnet, which writes to it.
  const scopes = [...context.plan.scopes.map((scope) => existingScope(context, scope)), ...subnets].filter(Boolean);
  const resources = context.plan.resources.flatMap(({ id }) => id ?? []);
  const subscriptions = [...new Set(scopes.map((scope) => scope.split("/")[2]!))];
  const findings: Finding[] = [];
  let count = 0;
  for (const subscription of subscriptions) {
    const { entries } = await context.arm.list(
      {
        path: `/subscriptions/${subscription}/providers/Microsoft.Authorization/locks`,
        apiVersion: VERSION,
        target: { operation: "list locks", resource: subscription },
      },
      Lock,
    );
    count += entries.length;
    for (const { id, name, properties } of entries) {
      const locked = id
        .slice(0, id.toLowerCase().lastIndexOf("/providers/microsoft.authorization/locks/"))
        .toLowerCase();
      const isReadOnly = properties.level === "ReadOnly";
      // A lock on a resource of an earlier deployment matters only if the deployment can't write the resource.
      const written = isReadOnly ? [...scopes, ...resources] : scopes;
      if (!written.some((one) => `${one.toLowerCase()}/`.startsWith(`${locked}/`))) continue;
      // Creating resources and joining a subnet is permitted with CanNotDelete.
      if (!isReadOnly && !locked.startsWith(context.group.id.toLowerCase())) continue;
      findings.push({
        code: isReadOnly ? "lock.readOnly" : "lock.cannotDelete",
        severity: isReadOnly ? "stops" : "degrades",
        subject: name,
        message: isReadOnly
          ? `The lock makes ${locked} read-only, so nothing can be written there.`
          : `The lock forbids deletions in ${locked}. Terraform can't replace resources, and the deployment history is not cleaned after 800 deployments.`,
        remedy: isReadOnly
          ? "Remove the lock for the deployment."
          : "Nothing, if you accept that. Otherwise remove the lock.",
        command: `az lock delete --ids ${quote(id)}`,
      });
    }
  }
  return { summary: counted(count, "lock"), findings };
}
