/** Names of secrets: https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets/create */
export const nameProblem = (name: string): string | undefined =>
  /^[A-Za-z0-9_-]{1,255}$/.test(name) ? undefined : "must be 1 to 255 letters, digits, - and _";
