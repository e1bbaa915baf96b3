/**
 * Checks the name of a secret in Secrets Manager. Returns the problem, or undefined.
 * https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_CreateSecret.html
 */
export function secretNameProblem(name: string): string | undefined {
  if (!/^[A-Za-z0-9/_+=.@-]{1,512}$/.test(name)) return "must be 1 to 512 letters, digits and any of /_+=.@-";
  // The name would look like a partial ARN of another secret.
  if (/-[A-Za-z0-9]{6}$/.test(name)) return "must not end in a hyphen and six letters or digits";
  return undefined;
}

/**
 * Checks the name of a parameter in Parameter Store: at most 900 characters and 15 levels. AWS allows 1,011 characters
 * including the ARN that it puts before the name, so 900 leaves room for any ARN.
 * https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_PutParameter.html
 */
export function parameterNameProblem(name: string): string | undefined {
  if (!/^[A-Za-z0-9_./-]{1,900}$/.test(name)) return "must be 1 to 900 letters, digits and any of _./-";
  if (name.includes("/") && !name.startsWith("/")) return "must begin with / if it contains one";
  if (name.endsWith("/") || name.includes("//")) return "must not hold an empty level";
  if (name.split("/").length - 1 > 15) return "must have at most 15 levels";
  if (/^\/?(aws|ssm)/i.test(name)) return "must not begin with aws or ssm";
  return undefined;
}
