/** Browsers by a part of their user agent. The user agents of later ones contain the parts of browsers below them. */
const BROWSERS: readonly [RegExp, string][] = [
  [/Edg(?:A|iOS)?\/(\d+)/, "Edge"],
  [/OPR\/(\d+)/, "Opera"],
  [/(?:Firefox|FxiOS)\/(\d+)/, "Firefox"],
  [/(?:Headless)?(?:Chrome|CriOS)\/(\d+)/, "Chrome"],
  [/Version\/(\d+).*Safari\//, "Safari"],
];

/** Operating systems by a part of the user agent. The user agent of Android contains "Linux", and the one of an iPhone "Mac OS X". */
const SYSTEMS: readonly [RegExp, string][] = [
  [/Windows/, "Windows"],
  [/Android/, "Android"],
  [/iPhone|iPad/, "iOS"],
  [/Mac OS X/, "macOS"],
  [/CrOS/, "ChromeOS"],
  [/Linux/, "Linux"],
];

/** Returns the browser and the system of a user agent, such as "Chrome 142 on Windows". Returns another user agent unchanged. */
export function browserText(userAgent: string | null): string {
  if (userAgent === null) return "Unknown browser";
  const browser = BROWSERS.flatMap(([pattern, name]) => {
    const match = pattern.exec(userAgent);
    return match ? `${name} ${match[1]}` : [];
  })[0];
  const system = SYSTEMS.find(([pattern]) => pattern.test(userAgent))?.[1];
  return [browser ?? userAgent, ...(browser !== undefined && system !== undefined ? [system] : [])].join(" on ");
}
