/** Names of secrets, not case-sensitive: https://docs.github.com/actions/reference/secrets-reference#naming-your-secrets */
const SECRET = /^(?!\d)(?!GITHUB_)[A-Z0-9_]{1,255}$/i;
const OWNER = /^[A-Za-z0-9](-?[A-Za-z0-9]){0,38}$/;
const REPOSITORY = /^(?!\.{1,2}$)[\w.-]{1,100}$/;
const ENVIRONMENT = /^(?!\.{1,2}$)[\w .-]{1,255}$/;

/** Checks a target name: `owner/repository/NAME`, or `owner/repository/environment/NAME`. Returns the problem, or undefined. */
export function nameProblem(name: string): string | undefined {
  const parts = name.split("/");
  const [owner = "", repository = ""] = parts;
  if (parts.length !== 3 && parts.length !== 4) {
    return "must be owner/repository/NAME, or owner/repository/environment/NAME";
  }
  if (!OWNER.test(owner)) return "must begin with an owner's name";
  if (!REPOSITORY.test(repository)) return "must have a repository's name second";
  if (parts.length === 4 && !ENVIRONMENT.test(parts[2]!)) return "must have an environment's name third";
  if (!SECRET.test(parts.at(-1)!)) {
    return "must end in a name of letters, digits and _, not with a digit or GITHUB_ first";
  }
  return undefined;
}

/** GitHub ignores case in all of its names. */
export const comparableName = (name: string): string => name.toUpperCase();

/** Returns the API path of the repository's or environment's secrets, and the name of the secret. */
export function pathAndName(name: string): { path: string; secret: string } {
  const parts = name.split("/");
  const secret = parts.at(-1)!.toUpperCase();
  const [owner, repository, environment] = parts.slice(0, -1).map(encodeURIComponent);
  const within = environment === undefined ? "actions/secrets" : `environments/${environment}/secrets`;
  return { path: `/repos/${owner}/${repository}/${within}`, secret };
}
