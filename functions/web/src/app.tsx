/** The root component: theme, query client, sign-in, and the shell with its views. */
import { FluentProvider, webDarkTheme, webLightTheme } from "@fluentui/react-components";
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

/** The page. Everything below `SignedIn` is rendered only for a signed-in user. */
export function App() {
  const theme = useIsDark() ? webDarkTheme : webLightTheme;
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
