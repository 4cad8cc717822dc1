-- Run by Quarto when the pages are written: takes out what they load from other hosts without using it.
-- Quarto adds require.js and jQuery to every page with a table made by pandas, and a polyfill for browsers of 2015 to every formula.
local needless = {
  '<script src="https://[^"]*/requirejs@[^>]*></script>\n?', '<script src="https://[^"]*/jquery@[^>]*></script>\n?',
  '<script type="application/javascript">define%(\'jquery\'[^<]*</script>\n?', '%s*<script src="https://[^"]*/polyfill[^>]*></script>',
}
for path in os.getenv("QUARTO_PROJECT_OUTPUT_FILES"):gmatch("[^\r\n]+") do
  if path:match("%.html$") then
    local file = assert(io.open(path, "rb"))
    local page = file:read("a")
    file:close()
    for _, pattern in ipairs(needless) do page = page:gsub(pattern, "") end
    file = assert(io.open(path, "wb"))
    file:write(page)
    file:close()
  end
end
