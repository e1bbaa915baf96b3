/** The root component: theme, query client, sign-in, and the shell with its views. */
import { FluentProvider, type Theme, webDarkTheme, webLightTheme } from "@fluentui/react-components";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { Shell } from "./shell/shell.tsx";
import { SignedIn } from "./shell/signed-in.tsx";
import { useIsDark } from "./shell/theme.ts";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // The API client retries rate-limited requests. Other errors have a "Try again" button.
      retry: false,
      staleTime: 30_000,
      refetchOnWindowFocus: false,
    },
    // Request bodies can contain passwords, so they are not cached.
    mutations: { gcTime: 0 },
  },
});

/** The light theme, with the text of unavailable buttons dark enough to read. */
const LIGHT_THEME: Theme = {
  ...webLightTheme,
  colorNeutralForegroundDisabled: webLightTheme.colorNeutralForeground4,
};

/**
 * The dark theme, with changed colors that are light enough to read: the text of unavailable buttons, and links and hovered
 * buttons in the row of a table that the pointer is over.
 */
const DARK_THEME: Theme = {
  ...webDarkTheme,
  colorNeutralForegroundDisabled: webDarkTheme.colorNeutralForeground4,
  colorBrandForegroundLink: webDarkTheme.colorBrandForegroundLinkHover,
  colorNeutralForeground2BrandHover: webDarkTheme.colorBrandForegroundLinkHover,
};

/** The page. Everything below `SignedIn` is rendered only for a signed-in user. */
export function App() {
  const theme = useIsDark() ? DARK_THEME : LIGHT_THEME;
  return (
    <FluentProvider theme={theme}>
      <QueryClientProvider client={queries}>
        <SignedIn>
          <Shell />
        </SignedIn>
      </QueryClientProvider>
    </FluentProvider>
  );
}
