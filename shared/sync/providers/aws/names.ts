/** https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_CreateSecret.html */
export function secretNameProblem(name: string): string | undefined {
  if (!/^[A-Za-z0-9/_+=.@-]{1,512}$/.test(name)) return "must be 1 to 512 letters, digits and any of /_+=.@-";
  // A partial ARN of another secret would look the same.
  if (/-[A-Za-z0-9]{6}$/.test(name)) return "must not end in a hyphen and six letters or digits";
  return undefined;
}

/**
 * https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_PutParameter.html: 1,011 characters with the ARN in
 * front of it, 15 levels.
 */
export function parameterNameProblem(name: string): string | undefined {
  if (!/^[A-Za-z0-9_./-]{1,900}$/.test(name)) return "must be 1 to 900 letters, digits and any of _./-";
  if (name.includes("/") && !name.startsWith("/")) return "must begin with / when it holds one";
  if (name.endsWith("/") || name.includes("//")) return "must not hold an empty level";
  if (name.split("/").length - 1 > 15) return "must have at most 15 levels";
  if (/^\/?(aws|ssm)/i.test(name)) return "must not begin with aws or ssm";
  return undefined;
}
