/** Reads a resource's environment and managing tool from its tags. Azure compares tag names case-insensitively. */
export function readTags(tags: Record<string, string>): { environment?: string; managedBy?: string } {
  const byName = new Map(Object.entries(tags).map(([name, value]) => [name.toLowerCase(), value.trim()]));
  const environment = ["environment", "env", "stage"].map((name) => byName.get(name)).find(Boolean);
  const managedBy = TOOL_TAGS.map((name) => TOOL.exec(byName.get(name) ?? "")?.[0])
    .concat(byName.has("azd-env-name") ? "azd" : undefined)
    .find(Boolean);
  return {
    ...(environment && { environment: environment.slice(0, 256) }),
    ...(managedBy && { managedBy: managedBy.toLowerCase() }),
  };
}

/** Tags that name an infrastructure-as-code tool, set by the tool or by its users. */
const TOOL_TAGS = [
  "managed-by",
  "managedby",
  "managed_by",
  "provisioner",
  "provisioned-by",
  "provisionedby",
  "deployed-by",
  "deployedby",
  "created-by",
  "createdby",
  "iac",
  "iac-tool",
];
/** Finds the name of a tool in the value of such a tag, for example in `Terraform Cloud`. */
const TOOL = /\b(terraform|opentofu|pulumi|bicep|crossplane|ansible|terragrunt|azd)\b/i;
