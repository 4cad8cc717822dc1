-- Run by Quarto when the pages are written: takes out what they load from other hosts without using it.
-- Brings the live figures and their tables along, which nbdev leaves behind.
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

local function bring(folder, wanted)
  local from, to = "../nbs/" .. folder .. "/", os.getenv("QUARTO_PROJECT_OUTPUT_DIR") .. "/" .. folder .. "/"
  pandoc.system.make_directory(to, true)
  for _, name in ipairs(pandoc.system.list_directory(from)) do
    if wanted == nil or wanted[name] then
      local source, target = assert(io.open(from .. name, "rb")), assert(io.open(to .. name, "wb"))
      target:write(source:read("a"))
      source:close()
      target:close()
    end
  end
end
bring("live")
bring("data", {["kernel.json"] = true, ["map.json"] = true, ["theorem.json"] = true, ["finite.json"] = true, ["judge.json"] = true})
