// Finds the management locks that stop or limit the deployment. A ReadOnly lock stops every write at or below its scope. A
// CanNotDelete lock permits writes, so it matters only in the service's own group, where later deployments delete. Terraform
// replaces resources there, and Azure removes the oldest entries of the deployment history.

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
  // The subscriptions, resource groups and subnets that the deployment writes to. Joining an existing subnet writes to it.
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
      const lockedScope = id
        .slice(0, id.toLowerCase().lastIndexOf("/providers/microsoft.authorization/locks/"))
        .toLowerCase();
      const isReadOnly = properties.level === "ReadOnly";
      // A resource of an earlier deployment can have a lock of its own, which matters only if it is ReadOnly.
      const written = isReadOnly ? [...scopes, ...resources] : scopes;
      if (!written.some((one) => `${one.toLowerCase()}/`.startsWith(`${lockedScope}/`))) continue;
      if (!isReadOnly && !lockedScope.startsWith(context.group.id.toLowerCase())) continue;
      findings.push({
        code: isReadOnly ? "lock.readOnly" : "lock.cannotDelete",
        severity: isReadOnly ? "stops" : "degrades",
        subject: name,
        message: isReadOnly
          ? `The lock makes ${lockedScope} read-only, so nothing can be written there.`
          : `The lock forbids deletions in ${lockedScope}. Terraform can't replace resources, and the deployment history is not cleaned after 800 deployments.`,
        remedy: isReadOnly
          ? "Remove the lock for the deployment."
          : "Nothing, if you accept that. Otherwise remove the lock.",
        command: `az lock delete --ids ${quote(id)}`,
      });
    }
  }
  return { summary: counted(count, "lock"), findings };
}
